package storetest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// A Scope owns servers in a program that is not a test. Its methods are safe
// for concurrent use.
type Scope struct {
	mu       sync.Mutex
	cleanups []func()
	err      error
}

// ErrSkipped is wrapped by the error of [Run] if a server is not installed.
var ErrSkipped = errors.New("skipped")

// Run calls f with a scope and ends the scope when f returns, fails or panics,
// or when the program receives SIGINT or SIGTERM. It returns the first failure.
func Run(f func(*Scope)) error {
	s := &Scope{}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	select {
	case <-s.begin(func() { f(s) }):
	case sig := <-interrupts:
		s.fail(fmt.Errorf("ended by a signal: %v", sig))
	}
	s.End()
	return s.failure()
}

// begin calls f in a new goroutine, which [Scope.Fatalf] and [Scope.Skipf] can
// end. If the goroutine ends before f returns, by one of them or by a panic,
// the scope ends too.
func (s *Scope) begin(f func()) (done <-chan struct{}) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		returned := false
		defer func() {
			if !returned {
				s.End()
			}
		}()
		f()
		returned = true
	}()
	return finished
}

// End stops all servers in reverse order of their start and removes their
// directories.
func (s *Scope) End() {
	for {
		s.mu.Lock()
		if len(s.cleanups) == 0 {
			s.mu.Unlock()
			return
		}
		last := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		s.mu.Unlock()
		<-s.begin(last)
	}
}

// Helper implements [TB].
func (s *Scope) Helper() {}

// Cleanup registers f to be called when the scope ends.
func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Fatalf records a failure and ends the calling goroutine.
func (s *Scope) Fatalf(format string, args ...any) {
	s.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Skipf records an [ErrSkipped] failure and ends the calling goroutine.
func (s *Scope) Skipf(format string, args ...any) {
	s.fail(fmt.Errorf("%w: %s", ErrSkipped, fmt.Sprintf(format, args...)))
	runtime.Goexit()
}

func (s *Scope) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *Scope) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
