package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest/redistest"
)

// timeout ends a program that hangs.
const timeout = 3 * time.Minute

// program is the path of the binary, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cron")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "cron")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if err := redistest.Shared.End(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// waits is a command that prints a line and then waits for its input to end.
var waits = []string{"sh", "-c", "echo started; cat"}

// TestCron_RunsOnOneMachine: of processes that start at once, one runs the command, and the
// others name it and end with exit code 0.
func TestCron_RunsOnOneMachine(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.Server(t).URL()
	var all []*process
	for range 5 {
		all = append(all, start(t, append([]string{url, "one"}, waits...)...))
	}
	var running *process
	for _, p := range all {
		if line := p.line(); line == "started" && running == nil {
			running = p
		} else if !regexp.MustCompile(`^one: skipped, process \d+ of \S+ runs it since \d\d:\d\d:\d\d$`).MatchString(line) {
			t.Errorf("printed %q", line)
		} else if code := p.end(); code != 0 {
			t.Errorf("skipped with exit code %d", code)
		}
	}
	if running == nil {
		t.Fatal("the command did not run")
	}
	if code := running.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// The permit is free as soon as the program has ended.
	next := start(t, url, "one", "sh", "-c", "echo again; exit 3")
	if line, code := next.line(), next.end(); line != "again" || code != 3 {
		t.Errorf("the next run printed %q, exit code %d", line, code)
	}
}

// TestCron_AnotherMachineRunsAfterACrash: a process that was killed loses its permit after
// the TTL.
func TestCron_AnotherMachineRunsAfterACrash(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.Server(t).URL()
	args := append([]string{"-ttl", "2s", url, "crash"}, waits...)
	crashing := start(t, args...)
	crashing.line()
	crashing.cmd.Process.Kill()
	crashing.end()
	for deadline := time.Now().Add(timeout); ; {
		p := start(t, args...)
		line := p.line()
		p.end()
		if line == "started" {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("still %q", line)
		}
	}
}

// TestCron_StartsOnceInAPeriod: a command that has ended is not started again.
func TestCron_StartsOnceInAPeriod(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.Server(t).URL()
	for i, want := range []string{"ran", "period: skipped, it has just run"} {
		p := start(t, "-every", "1h", url, "period", "echo", "ran")
		if line, code := p.line(), p.end(); line != want || code != 0 {
			t.Errorf("run %d: %q, exit code %d", i+1, line, code)
		}
	}
}

// TestCron_LostLeaseEndsTheCommand: the command receives SIGTERM when Redis is away for
// longer than the TTL.
func TestCron_LostLeaseEndsTheCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := start(t, "-ttl", "2s", server.URL(), "lost", "sh", "-c", `trap "echo terminated; exit 5" TERM; echo started; while :; do sleep 0.1; done`)
	if line := p.line(); line != "started" {
		t.Fatalf("printed %q", line)
	}
	server.StopAtOnce()
	if line := p.line(); line != "terminated" {
		t.Errorf("printed %q", line)
	}
	if code := p.end(); code == 0 {
		t.Error("exit code 0 although the permit was lost")
	}
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	err   strings.Builder
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...)}
	input, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.input, p.lines, p.cmd.Stderr = input, bufio.NewScanner(output), &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(timeout, func() { p.cmd.Process.Kill() })
	t.Cleanup(func() {
		hung.Stop()
		input.Close()
		p.cmd.Wait()
	})
	return p
}

// line waits for the next line that the program prints.
func (p *process) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.input.Close()
		p.cmd.Wait()
		p.t.Fatalf("the program ended: %s", &p.err)
	}
	return p.lines.Text()
}

// end closes the input, and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	p.input.Close()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}
