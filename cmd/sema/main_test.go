package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// binary is sema, as it is built for users.
var binary string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	directory, err := os.MkdirTemp("", "sema")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	binary = filepath.Join(directory, "sema")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.Command("go", "build", "-o", binary, ".")
	if raceEnabled {
		build.Args = []string{"go", "build", "-race", "-o", binary, "."}
	}
	if said, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, said)
		return 1
	}
	code := m.Run()
	if err := errors.Join(redistest.Shared.End(), pgtest.Shared.End()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// A shell is an environment in which sema is called.
type shell struct {
	t     testing.TB
	store string
	env   []string
}

// onHost has semaphores of its own on this machine.
func onHost(t testing.TB) shell { return shell{t: t, store: "host:" + t.TempDir()} }

// onRedis has semaphores of its own in a Redis that all tests share.
func onRedis(t testing.TB) shell {
	return shell{t: t, store: redistest.Shared.URL(t) + "?prefix=" + strings.ReplaceAll(t.Name(), "/", ".") + "-"}
}

// onService has semaphores of its own, behind a `sema serve`.
func onService(t testing.TB) shell {
	t.Helper()
	s := shell{t: t, env: []string{"XDG_STATE_HOME=" + t.TempDir()}}
	server := s.start("serve", "--listen", "127.0.0.1:0")
	for {
		if _, rest, found := strings.Cut(server.line(), "http://"); found {
			address, _, _ := strings.Cut(rest, "/")
			return shell{t: t, store: "sema://" + address}
		}
	}
}

// everywhere runs a test on this machine, and among machines.
func everywhere(t *testing.T, test func(*testing.T, shell)) {
	t.Run("host", func(t *testing.T) {
		t.Parallel()
		test(t, onHost(t))
	})
	amongMachines(t, test)
}

// amongMachines runs a test over a store, and over the service.
func amongMachines(t *testing.T, test func(*testing.T, shell)) {
	for name, on := range map[string]func(testing.TB) shell{"redis": onRedis, "service": onService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, on(t))
		})
	}
}

// onOwnRedis is for tests that do the server harm.
func onOwnRedis(t testing.TB) (shell, *redistest.Server) {
	server := redistest.Start(t)
	return shell{t: t, store: server.URL()}, server
}

// quickly is for the race detector, with which each call would take a second.
const quickly = "GORACE=atexit_sleep_ms=0"

func (s shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "SEMA_STORE="+s.store, quickly)
	cmd.Env = append(cmd.Env, s.env...)
	cmd.WaitDelay = patience
	return cmd
}

// A result is how a call of sema has ended.
type result struct {
	code     int
	out, err string
}

// run calls sema and waits for its end.
func (s shell) run(args ...string) result { s.t.Helper(); return s.feed("", args...) }

// feed is run, with something to read.
func (s shell) feed(input string, args ...string) result {
	s.t.Helper()
	cmd := s.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	code := codeOf(s.t, cmd.Run())
	return result{code, out.String(), errs.String()}
}

// must is run of what has to go well.
func (s shell) must(args ...string) string {
	s.t.Helper()
	r := s.run(args...)
	if r.code != 0 {
		s.t.Fatalf("sema %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// expect fails unless a call ends with a code, and says some texts on stderr.
func (s shell) expect(code int, texts []string, args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	if r.code != code {
		s.t.Errorf("sema %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			s.t.Errorf("sema %s: it does not say %q but\n%s", strings.Join(args, " "), text, r.err)
		}
	}
	return r
}

func codeOf(t testing.TB, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode() // -1 if a signal has ended it
	}
	t.Fatalf("%v", err)
	panic("not reached")
}

// A process is a sema that runs. Its lines come from what it and its command write.
type process struct {
	*os.Process
	t     testing.TB
	in    io.WriteCloser
	lines chan string
	ended chan struct{}
	code  int
	err   written
}

// start starts sema in the background. What is left of it is killed.
func (s shell) start(args ...string) *process {
	s.t.Helper()
	return startCommand(s.t, s.command(args...))
}

func startCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, lines: make(chan string, 100), ended: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A file has all of it as soon as the process has ended; a pipe would not.
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	cmd.Stderr, p.err = errs, written{t, errs.Name()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Process, p.in = cmd.Process, in
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		close(p.lines)
	}()
	go func() {
		state, err := cmd.Process.Wait()
		if p.code = -1; err == nil {
			p.code = state.ExitCode()
		}
		close(p.ended)
	}()
	t.Cleanup(func() {
		in.Close()
		p.Kill()
		<-p.ended
	})
	return p
}

// line is the next one that it writes.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, open := <-p.lines:
		if !open {
			p.t.Fatalf("process %d ended instead of writing something\n%s", p.Pid, p.err.text())
		}
		return line
	case <-time.After(patience):
		p.t.Fatalf("process %d writes nothing\n%s", p.Pid, p.err.text())
	}
	panic("not reached")
}

// silent waits until neither it nor what it has started can write any more: all of
// them are gone.
func (p *process) silent() {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-p.lines:
			if !open {
				return
			}
		case <-deadline:
			p.t.Fatalf("of process %d something is left", p.Pid)
		}
	}
}

// wait is its exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("process %d does not end\n%s", p.Pid, p.err.text())
	}
	return p.code
}

// A written is a file that is written to.
type written struct {
	t    testing.TB
	path string
}

func (w written) text() string {
	all, err := os.ReadFile(w.path)
	if err != nil {
		w.t.Error(err)
	}
	return string(all)
}

// A said is what was written so far.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func pidText(p *process) string { return strconv.Itoa(p.Pid) }
