package main

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/sema-go/sema/internal/storetest/pgtest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// binary is the path of sema as it is installed: the quick program, with the complete one beside
// it. full is the path of the complete program.
var binary, full string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	directory, err := os.MkdirTemp("", "sema")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	binary, full = filepath.Join(directory, "sema"), filepath.Join(directory, "sema-full")
	if runtime.GOOS == "windows" {
		binary, full = binary+".exe", full+".exe"
	}
	for path, source := range map[string]string{binary: "./quick", full: "."} {
		build := exec.Command("go", "build", "-o", path)
		if raceEnabled {
			build.Args = append(build.Args, "-race")
		}
		build.Args = append(build.Args, source)
		if output, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, output)
			return 1
		}
	}
	code := m.Run()
	if err := errors.Join(redistest.Shared.End(), pgtest.Shared.End()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// eventTimeout bounds how long a test waits for an event.
const eventTimeout = time.Minute

// A shell is an environment in which sema runs.
type shell struct {
	t       testing.TB
	store   string
	env     []string
	program string // "": binary
}

// onHost returns a shell with separate semaphores on this machine.
func onHost(t testing.TB) shell { return shell{t: t, store: "host:" + t.TempDir()} }

// onRedis returns a shell with separate semaphores in a Redis that all tests share.
func onRedis(t testing.TB) shell {
	return shell{t: t, store: redistest.Shared.URL(t) + "?prefix=" + strings.ReplaceAll(t.Name(), "/", ".") + "-"}
}

// onService returns a shell with separate semaphores, behind a `sema serve`.
func onService(t testing.TB) shell { return served(t) }

// served returns a shell over a `sema serve` with some flags.
func served(t testing.TB, flags ...string) shell {
	t.Helper()
	s := shell{t: t, env: []string{"XDG_STATE_HOME=" + t.TempDir()}}
	server := s.start(append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	for {
		if _, rest, found := strings.Cut(server.line(), "http://"); found {
			address, _, _ := strings.Cut(rest, "/")
			return shell{t: t, store: "sema://" + address}
		}
	}
}

// everywhere runs a test on this machine, over a store, and over the service.
func everywhere(t *testing.T, test func(*testing.T, shell)) {
	for name, program := range map[string]string{"host": binary, "host, complete program": full} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onHost(t)
			s.program = program
			test(t, s)
		})
	}
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

// onOwnRedis returns a shell over a separate Redis, for tests that damage the server.
func onOwnRedis(t testing.TB) (shell, *redistest.Server) {
	server := redistest.Start(t)
	return shell{t: t, store: server.URL()}, server
}

// quickly removes the exit delay of the race detector, which would be a second per run.
const quickly = "GORACE=atexit_sleep_ms=0"

func (s shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(s.program, binary), args...)
	cmd.Env = append(os.Environ(), "SEMA_STORE="+s.store, quickly)
	cmd.Env = append(cmd.Env, s.env...)
	cmd.WaitDelay = eventTimeout
	return cmd
}

// A result is the result of a run of sema.
type result struct {
	code     int
	out, err string
}

// run runs sema and waits for its end.
func (s shell) run(args ...string) result { s.t.Helper(); return s.feed("", args...) }

// feed runs sema with an input.
func (s shell) feed(input string, args ...string) result {
	s.t.Helper()
	cmd := s.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	code := codeOf(s.t, cmd.Run())
	return result{code, out.String(), errs.String()}
}

// must runs sema and fails unless its exit code is 0.
func (s shell) must(args ...string) string {
	s.t.Helper()
	r := s.run(args...)
	if r.code != 0 {
		s.t.Fatalf("sema %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// expect runs sema and fails unless it ends with a code and writes texts to stderr.
func (s shell) expect(code int, texts []string, args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	if r.code != code {
		s.t.Errorf("sema %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			s.t.Errorf("sema %s: no %q in stderr:\n%s", strings.Join(args, " "), text, r.err)
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

// A process is a running sema. lines receives what it and its command write.
type process struct {
	*os.Process
	t     testing.TB
	in    io.WriteCloser
	lines chan string
	ended chan struct{}
	code  int
	err   written
}

// start starts sema in the background. It is killed when the test ends.
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
	// A file is complete as soon as the process has ended; a pipe would not be.
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

// line returns the next line of the output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, open := <-p.lines:
		if !open {
			p.t.Fatalf("process %d ended without writing a line\n%s", p.Pid, p.err.text())
		}
		return line
	case <-time.After(eventTimeout):
		p.t.Fatalf("process %d writes nothing\n%s", p.Pid, p.err.text())
	}
	panic("not reached")
}

// waitClosed waits until neither the process nor its children can write any more, because all of them
// have ended.
func (p *process) waitClosed() {
	p.t.Helper()
	deadline := time.After(eventTimeout)
	for {
		select {
		case _, open := <-p.lines:
			if !open {
				return
			}
		case <-deadline:
			p.t.Fatalf("processes of %d are still running", p.Pid)
		}
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(eventTimeout):
		p.t.Fatalf("process %d does not end\n%s", p.Pid, p.err.text())
	}
	return p.code
}

// A written is a file that a process writes to.
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

// An outputBuffer collects what was written so far.
type outputBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *outputBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *outputBuffer) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(eventTimeout); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}

func pidText(p *process) string { return strconv.Itoa(p.Pid) }
