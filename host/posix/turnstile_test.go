package posix

import (
	"testing"
	"time"
)

// The turn comes to somebody who has just decided to give up. The next must
// get it.
func TestATurnThatComesTooLateIsPassedOn(t *testing.T) {
	for range 50 {
		var s turnstile
		s.enter(nil, nil)
		done, left := make(chan struct{}), make(chan bool)
		go func() { left <- s.enter(done, nil) }()
		lineReaches(t, &s, 1)
		next := make(chan bool, 1)
		go func() { next <- s.enter(nil, nil) }()
		lineReaches(t, &s, 2)

		s.mu.Lock()
		close(done) // who sees it cannot leave before us
		s.passOn()
		s.mu.Unlock()
		if <-left {
			s.leave() // it saw its turn first
		}
		select {
		case <-next:
		case <-time.After(time.Minute):
			t.Fatal("the turn was lost")
		}
		s.leave()
		if s.taken || s.line.Len() > 0 {
			t.Fatal("taken by nobody")
		}
	}
}

func lineReaches(t *testing.T, s *turnstile, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Microsecond) {
		s.mu.Lock()
		length := s.line.Len()
		s.mu.Unlock()
		if length == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d in line, want %d", length, n)
		}
	}
}
