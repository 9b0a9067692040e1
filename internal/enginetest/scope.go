package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// A Scope owns servers in a program that is no test. Its methods may be called by
// several goroutines at once.
type Scope struct {
	mu       sync.Mutex
	cleanups []func()
	err      error
}

// ErrSkipped is why [Run] did nothing: a server is not installed.
var ErrSkipped = errors.New("skipped")

// Run calls f with a scope that ends with it, be it by returning, by a failure, by
// a panic, or because somebody interrupts the program. The first failure is
// returned.
func Run(f func(*Scope)) error {
	s := &Scope{}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	select {
	case <-s.begin(func() { f(s) }):
	case by := <-interrupts:
		s.fail(fmt.Errorf("ended by a signal: %v", by))
	}
	s.End()
	return s.failure()
}

// begin calls f in a goroutine, which [Scope.Fatalf] and [Scope.Skipf] can end. If
// they do, or a panic does, so does the scope.
func (s *Scope) begin(f func()) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if !returned {
				s.End()
			}
		}()
		f()
		returned = true
	}()
	return over
}

// End stops all servers, the last one first, and removes their directories.
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

// Helper is for [TB].
func (s *Scope) Helper() {}

// Cleanup has f called when the scope ends.
func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Fatalf notes a failure and ends the goroutine that calls it.
func (s *Scope) Fatalf(format string, args ...any) {
	s.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Skipf is Fatalf for what is not installed.
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
