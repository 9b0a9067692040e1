// Package proctest starts child processes for tests: the test's own binary in a role,
// with which the test exchanges lines. Use it for tests of behaviour that goroutines
// cannot show: crashes, stopped processes, locks that belong to a process.
package proctest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const roleVariable = "SEMA_PROCTEST_ROLE"

// receiveTimeout bounds how long a test waits for a line before it fails.
const receiveTimeout = time.Minute

// A Child is the child's own side of the connection, passed to its role.
type Child struct {
	Args  []string
	lines chan string
}

// Main implements TestMain: in a process started by [Start] it runs the role and exits,
// otherwise it runs the tests. A child whose parent ends exits with status 3.
func Main(m interface{ Run() int }, roles map[string]func(*Child)) {
	name := os.Getenv(roleVariable)
	if name == "" {
		m.Run()
		return
	}
	role := roles[name]
	if role == nil {
		fmt.Fprintf(os.Stderr, "proctest: no role %q\n", name)
		os.Exit(2)
	}
	c := &Child{Args: os.Args[1:], lines: make(chan string, 64)}
	go c.readLines()
	role(c)
	os.Exit(0)
}

func (c *Child) readLines() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		c.lines <- in.Text()
	}
	os.Exit(3)
}

// Receive waits for the parent's next line.
func (c *Child) Receive() string { return <-c.lines }

// Send sends a line to the parent.
func (c *Child) Send(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Must exits and fails the parent's test if err is not nil.
func (c *Child) Must(err error) {
	if err != nil {
		c.Send("failed: %v", err)
		os.Exit(1)
	}
}

// A Process is the test's side of the connection to a child.
type Process struct {
	*os.Process
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	ended bool
}

// Start starts the test's binary in a role. The process is killed when the test ends.
func Start(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, Command(t, role, args...))
}

// Command returns a command that runs the test's binary in a role, for [StartCommand].
func Command(t testing.TB, role string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

// StartCommand does the same as [Start] for any program that exchanges lines.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{Process: cmd.Process, t: t, cmd: cmd, in: in, lines: make(chan string, 1024)}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(p.End)
	return p
}

// Send sends a line to the child. It does nothing if the child has ended.
func (p *Process) Send(format string, args ...any) { fmt.Fprintf(p.in, format+"\n", args...) }

// Receive waits for the child's next line.
func (p *Process) Receive() string {
	p.t.Helper()
	select {
	case line, open := <-p.lines:
		if !open {
			p.t.Fatalf("process %d ended without sending a line", p.Pid)
		}
		p.checkFailure(line)
		return line
	case <-time.After(receiveTimeout):
		p.t.Fatalf("process %d sent no line for %v", p.Pid, receiveTimeout)
	}
	panic("not reached")
}

// Expect fails the test unless the child's next line is want.
func (p *Process) Expect(want string) {
	p.t.Helper()
	if got := p.Receive(); got != want {
		p.t.Fatalf("process %d sent %q, want %q", p.Pid, got, want)
	}
}

// Quiet fails the test if the child sends a line within d.
func (p *Process) Quiet(d time.Duration) {
	p.t.Helper()
	select {
	case line := <-p.lines:
		p.t.Fatalf("process %d sent %q, want nothing", p.Pid, line)
	case <-time.After(d):
	}
}

// checkFailure fails the test if the line is from [Child.Must].
func (p *Process) checkFailure(line string) {
	p.t.Helper()
	if text, failed := strings.CutPrefix(line, "failed: "); failed {
		p.t.Errorf("process %d: %s", p.Pid, text)
	}
}

// End kills the child with SIGKILL and waits until it has ended. A failure that the
// child reported before fails the test.
func (p *Process) End() {
	if p.ended {
		return
	}
	p.ended = true
	p.Kill()
	p.in.Close()
	for line := range p.lines {
		p.checkFailure(line)
	}
	p.cmd.Wait()
}

// Wait waits for the child to end by itself.
func (p *Process) Wait() error {
	p.ended = true
	for range p.lines {
	}
	return p.cmd.Wait()
}
