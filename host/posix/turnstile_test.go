package posix

import (
	"testing"
	"time"
)

// TestTurnstile_PassesOnALateTurn passes the turn to a waiter that is about to leave. The
// next waiter must get it.
func TestTurnstile_PassesOnALateTurn(t *testing.T) {
	for range 50 {
		var s turnstile
		s.enter(nil, nil)
		done, left := make(chan struct{}), make(chan bool)
		go func() { left <- s.enter(done, nil) }()
		awaitQueue(t, &s, 1)
		next := make(chan bool, 1)
		go func() { next <- s.enter(nil, nil) }()
		awaitQueue(t, &s, 2)

		s.mu.Lock()
		close(done) // the waiter cannot leave before the mutex is unlocked
		s.passOnLocked()
		s.mu.Unlock()
		if <-left {
			s.leave() // it saw the turn first
		}
		select {
		case <-next:
		case <-time.After(time.Minute):
			t.Fatal("the turn was lost")
		}
		s.leave()
		if s.taken || s.queue.Len() > 0 {
			t.Fatal("still taken, or the queue is not empty")
		}
	}
}

func awaitQueue(t *testing.T, s *turnstile, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Microsecond) {
		s.mu.Lock()
		length := s.queue.Len()
		s.mu.Unlock()
		if length == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d queued, want %d", length, n)
		}
	}
}
