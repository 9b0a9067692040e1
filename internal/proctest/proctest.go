// Package proctest lets a test have other processes: the test's own binary,
// started again in a role, spoken to line by line. For tests of what
// goroutines cannot show: crashes, stops, locks that belong to a process.
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

// patience is how long a test waits for a line before it fails.
const patience = time.Minute

// A Child is a process seen from inside, in its role.
type Child struct {
	Args  []string
	lines chan string
}

// Main is for TestMain: in a process started by [Start] it plays the role and
// exits, else it runs the tests. A child whose parent goes away exits.
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
	go c.listen()
	role(c)
	os.Exit(0)
}

func (c *Child) listen() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		c.lines <- in.Text()
	}
	os.Exit(3)
}

// Hear waits for the parent's next line.
func (c *Child) Hear() string { return <-c.lines }

// Say sends the parent a line.
func (c *Child) Say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Must ends the child loudly, and with it the parent's test, if err is one.
func (c *Child) Must(err error) {
	if err != nil {
		c.Say("failed: %v", err)
		os.Exit(1)
	}
}

// A Process is a child seen from the test.
type Process struct {
	*os.Process
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	gone  bool
}

// Start starts the test's binary in a role. What is left of it when the test
// ends is killed.
func Start(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, Command(t, role, args...))
}

// Command is the test's binary in a role, for [StartCommand].
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

// StartCommand is [Start] for any program that speaks in lines.
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

// Say sends the child a line. One that is gone does not hear it.
func (p *Process) Say(format string, args ...any) { fmt.Fprintf(p.in, format+"\n", args...) }

// Hear waits for the child's next line.
func (p *Process) Hear() string {
	p.t.Helper()
	select {
	case line, open := <-p.lines:
		if !open {
			p.t.Fatalf("process %d ended instead of saying something", p.Pid)
		}
		p.checkFailure(line)
		return line
	case <-time.After(patience):
		p.t.Fatalf("process %d said nothing for %v", p.Pid, patience)
	}
	panic("not reached")
}

// Expect fails the test unless the child's next line is want.
func (p *Process) Expect(want string) {
	p.t.Helper()
	if got := p.Hear(); got != want {
		p.t.Fatalf("process %d said %q, want %q", p.Pid, got, want)
	}
}

// Quiet fails the test if the child says anything within d.
func (p *Process) Quiet(d time.Duration) {
	p.t.Helper()
	select {
	case line := <-p.lines:
		p.t.Fatalf("process %d said %q, want silence", p.Pid, line)
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

// End kills the child with SIGKILL and waits until it is gone. What it had
// said of a failure fails the test.
func (p *Process) End() {
	if p.gone {
		return
	}
	p.gone = true
	p.Kill()
	p.in.Close()
	for line := range p.lines {
		p.checkFailure(line)
	}
	p.cmd.Wait()
}

// Wait waits for the child to end by itself.
func (p *Process) Wait() error {
	p.gone = true
	for range p.lines {
	}
	return p.cmd.Wait()
}
