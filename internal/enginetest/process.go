package enginetest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a server may take to answer, or to end.
const patience = time.Minute

// A Program is how a server is run.
type Program struct {
	Path string
	Args []string
	Env  []string // beside that of this program
	Dir  string

	// User is who runs it if this program is run by root; "" for root.
	User string

	// AtOnce ends it without regard to what it does, with all it has forked; 0
	// for SIGKILL.
	AtOnce syscall.Signal

	// InOrder lets it finish; 0 for SIGTERM.
	InOrder syscall.Signal

	// Answers returns nil once the process with this number serves, and not
	// another one at its port.
	Answers func(pid int) error
}

func (p Program) atOnce() syscall.Signal { return cmp.Or(p.AtOnce, syscall.SIGKILL) }

// Run runs a program that ends by itself. If it fails, the error has what it said.
func (p Program) Run() error {
	r, err := begin(p)
	if err != nil {
		return err
	}
	<-r.gone
	if r.verdict != nil {
		return fmt.Errorf("%s: %w\n%s", p.Path, r.verdict, r.output.text())
	}
	return nil
}

// A Process is a server that can be ended and started again with what it has on
// its disk, at the same port.
type Process struct {
	tb      TB
	program Program
	mu      sync.Mutex
	run     *run // nil if it was ended
}

// NewProcess is one that is still to be started. It is ended with its owner.
func NewProcess(t TB, p Program) *Process {
	if by, ok := t.(timed); ok {
		p.Env = append(p.Env, by.clock.environment()...)
	}
	process := &Process{tb: t, program: p}
	t.Cleanup(process.StopAtOnce)
	return process
}

// Start starts it, unless it runs, and waits until it answers.
func (p *Process) Start() error {
	p.mu.Lock()
	if p.run != nil && p.run.lives() {
		p.mu.Unlock()
		return nil
	}
	r, err := begin(p.program)
	p.run = r
	p.mu.Unlock()
	if err != nil {
		return err
	}
	var answer error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if answer = p.program.Answers(r.process.Pid); answer == nil {
			return nil
		}
		select {
		case <-r.gone:
			return fmt.Errorf("%s ended: %w\n%s", p.program.Path, answer, r.output.text())
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.Kill()
	return fmt.Errorf("%s does not answer: %w\n%s", p.program.Path, answer, r.output.text())
}

// Restart kills it, if it runs, and starts it again.
func (p *Process) Restart() {
	p.tb.Helper()
	p.Kill()
	if err := p.Start(); err != nil {
		p.tb.Fatalf("it does not start again: %v", err)
	}
}

// Kill is kill -9. When it returns, the process and all it has forked are gone.
func (p *Process) Kill() {
	p.tb.Helper()
	p.end(syscall.SIGKILL)
}

// Stop lets it finish what it does.
func (p *Process) Stop() {
	p.tb.Helper()
	p.end(cmp.Or(p.program.InOrder, syscall.SIGTERM))
}

// StopAtOnce does not, but is cleaner than Kill for a server that has a way.
func (p *Process) StopAtOnce() {
	p.tb.Helper()
	p.end(p.program.atOnce())
}

func (p *Process) end(by syscall.Signal) {
	p.tb.Helper()
	p.mu.Lock()
	r := p.run
	p.run = nil
	p.mu.Unlock()
	if r == nil {
		return
	}
	_ = r.process.Signal(by) // it may be gone
	_ = r.thaw()             // or it does not hear
	select {
	case <-r.gone:
		return
	case <-time.After(patience):
	}
	_ = r.process.Kill()
	p.tb.Fatalf("%s did not end by %v within %v\n%s", p.program.Path, by, patience, r.output.text())
}

// Pause freezes it: to others it is as if it were cut off, until Continue.
func (p *Process) Pause() { p.tb.Helper(); p.signal((*run).freeze) }

// Continue ends a pause.
func (p *Process) Continue() { p.tb.Helper(); p.signal((*run).thaw) }

func (p *Process) signal(f func(*run) error) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		p.tb.Fatalf("%s does not run", p.program.Path)
	}
	if err := f(p.run); err != nil {
		p.tb.Fatalf("%s: %v", p.program.Path, err)
	}
}

// Runs reports whether it is neither ended nor paused.
func (p *Process) Runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && p.run.lives() && !p.run.frozen
}

// Output is the end of what it has said since it was last started.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return ""
	}
	return p.run.output.text()
}

// Launch makes a server and starts it, up to five times: another program may have
// taken its port.
func Launch[S interface{ Start() error }](t TB, newServer func() S) S {
	t.Helper()
	for attempt := 1; ; attempt++ {
		s := newServer()
		err := s.Start()
		if err == nil {
			return s
		}
		if attempt == 5 {
			t.Fatalf("no server starts: %v", err)
		}
	}
}

// A run is from one start to one end.
type run struct {
	process *os.Process
	frozen  bool          // guarded by the process's mutex, until it is ended
	gone    chan struct{} // closed when it and all it has forked are gone
	verdict error         // nil if it ended well; to be read when it is gone
	output  tail
}

func begin(p Program) (*run, error) {
	r := &run{gone: make(chan struct{})}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	// A pipe that all it forks inherit, so that Wait waits for them too.
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	var err error
	if cmd.SysProcAttr, err = attributes(p); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// Linux ends a child that is to die with its parent when the thread that
		// has started it ends. This one does not, as long as there is the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.verdict = cmd.Wait()
			close(r.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	r.process = cmd.Process
	return r, nil
}

func (r *run) lives() bool {
	select {
	case <-r.gone:
		return false
	default:
		return true
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailSize = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}
