package storetest

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

// serverTimeout is how long a server may take to reply, or to end.
const serverTimeout = time.Minute

// A Program describes how to run a server.
type Program struct {
	Path string
	Args []string
	Env  []string // in addition to the environment of this program
	Dir  string

	// User runs the server if this program runs as root; "" means root.
	User string

	// ImmediateSignal ends the server and all processes it forked without
	// finishing their work; 0 means SIGKILL.
	ImmediateSignal syscall.Signal

	// StopSignal ends the server after it finished its work; 0 means SIGTERM.
	StopSignal syscall.Signal

	// Ready returns nil once the process with this ID serves requests. It must
	// detect another server on the same port.
	Ready func(pid int) error
}

func (p Program) immediateSignal() syscall.Signal { return cmp.Or(p.ImmediateSignal, syscall.SIGKILL) }

// Run runs a program that ends by itself. If the program fails, the error
// contains its output.
func (p Program) Run() error {
	r, err := startProgram(p)
	if err != nil {
		return err
	}
	<-r.gone
	if r.exitErr != nil {
		return fmt.Errorf("%s: %w\n%s", p.Path, r.exitErr, r.output.text())
	}
	return nil
}

// A Process is a server that can be ended and restarted with the data on its
// disk, on the same port.
type Process struct {
	tb      TB
	program Program
	mu      sync.Mutex
	run     *run // nil if it was ended
}

// NewProcess returns a process that is not started. It is ended when t ends.
func NewProcess(t TB, p Program) *Process {
	if clocked, ok := t.(clockedTB); ok {
		p.Env = append(p.Env, clocked.clock.environment()...)
	}
	process := &Process{tb: t, program: p}
	t.Cleanup(process.StopAtOnce)
	return process
}

// Start starts the process unless it is running, and waits until it is ready.
func (p *Process) Start() error {
	p.mu.Lock()
	if p.run != nil && p.run.isRunning() {
		p.mu.Unlock()
		return nil
	}
	r, err := startProgram(p.program)
	p.run = r
	p.mu.Unlock()
	if err != nil {
		return err
	}
	var notReady error
	for deadline := time.Now().Add(serverTimeout); time.Now().Before(deadline); {
		if notReady = p.program.Ready(r.process.Pid); notReady == nil {
			return nil
		}
		select {
		case <-r.gone:
			return fmt.Errorf("%s ended: %w\n%s", p.program.Path, notReady, r.output.text())
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.Kill()
	return fmt.Errorf("%s does not become ready: %w\n%s", p.program.Path, notReady, r.output.text())
}

// Restart kills the process if it is running, and starts it again.
func (p *Process) Restart() {
	p.tb.Helper()
	p.Kill()
	if err := p.Start(); err != nil {
		p.tb.Fatalf("restart: %v", err)
	}
}

// Kill sends SIGKILL. It returns after the process and all processes it forked
// have ended.
func (p *Process) Kill() {
	p.tb.Helper()
	p.end(syscall.SIGKILL)
}

// Stop ends the process and lets it finish its work.
func (p *Process) Stop() {
	p.tb.Helper()
	p.end(cmp.Or(p.program.StopSignal, syscall.SIGTERM))
}

// StopAtOnce ends the process without letting it finish its work. Unlike Kill,
// it uses the server's own signal for that, if there is one.
func (p *Process) StopAtOnce() {
	p.tb.Helper()
	p.end(p.program.immediateSignal())
}

func (p *Process) end(sig syscall.Signal) {
	p.tb.Helper()
	p.mu.Lock()
	r := p.run
	p.run = nil
	p.mu.Unlock()
	if r == nil {
		return
	}
	_ = r.process.Signal(sig) // it may have ended already
	_ = r.resume()            // a stopped process does not handle signals
	select {
	case <-r.gone:
		return
	case <-time.After(serverTimeout):
	}
	_ = r.process.Kill()
	p.tb.Fatalf("%s did not end by %v within %v\n%s", p.program.Path, sig, serverTimeout, r.output.text())
}

// Pause stops the process with SIGSTOP until Continue. To its clients it looks
// unreachable.
func (p *Process) Pause() { p.tb.Helper(); p.signal((*run).pause) }

// Continue ends a pause.
func (p *Process) Continue() { p.tb.Helper(); p.signal((*run).resume) }

func (p *Process) signal(f func(*run) error) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		p.tb.Fatalf("%s is not running", p.program.Path)
	}
	if err := f(p.run); err != nil {
		p.tb.Fatalf("%s: %v", p.program.Path, err)
	}
}

// Runs reports whether the process is neither ended nor paused.
func (p *Process) Runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && p.run.isRunning() && !p.run.paused
}

// Output returns the last 8 KiB that the process printed since its last start.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return ""
	}
	return p.run.output.text()
}

// Launch creates a server and starts it. It tries up to five times, because
// another program may have taken the server's port.
func Launch[S interface{ Start() error }](t TB, newServer func() S) S {
	t.Helper()
	for attempt := 1; ; attempt++ {
		s := newServer()
		err := s.Start()
		if err == nil {
			return s
		}
		if attempt == 5 {
			t.Fatalf("start a server: %v (5 attempts)", err)
		}
	}
}

// A run lasts from one start of a process to its end.
type run struct {
	process *os.Process
	paused  bool          // guarded by Process.mu until the run is ended
	gone    chan struct{} // closed when the process and all processes it forked have ended
	exitErr error         // nil if it exited with 0; read only after gone is closed
	output  tail
}

func startProgram(p Program) (*run, error) {
	r := &run{gone: make(chan struct{})}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	// The pipe is inherited by forked processes, so Wait waits for them too.
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	var err error
	if cmd.SysProcAttr, err = sysProcAttr(p); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// With Pdeathsig, Linux ends the child when the thread that started it
		// ends. This thread lasts as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.exitErr = cmd.Wait()
			close(r.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	r.process = cmd.Process
	return r, nil
}

func (r *run) isRunning() bool {
	select {
	case <-r.gone:
		return false
	default:
		return true
	}
}

// A tail keeps the last tailSize bytes written to it.
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
