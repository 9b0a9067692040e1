package teaching

import (
	"container/list"
	"context"
	"sync"
)

// A Queue is a semaphore with weights whose waiters are served in order of arrival, and can be
// cancelled. A release hands permits to waiters under the mutex, so that no caller can overtake
// a waiter that is about to wake up.
type Queue struct {
	mu      sync.Mutex
	free    int64     // guarded by mu
	waiters list.List // of *waiter, guarded by mu; the head is served next
}

// A waiter is a queued caller. It is granted when granted is closed, under the mutex, and after
// it has left the list.
type waiter struct {
	weight  int64
	granted chan struct{}
}

// NewQueue returns a semaphore with n permits, all free.
func NewQueue(n int64) *Queue { return &Queue{free: n} }

// Acquire takes n permits, or returns the cause of a context that ended. It waits for ever if n
// exceeds the capacity, as a textbook's semaphore does.
func (s *Queue) Acquire(ctx context.Context, n int64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if s.free >= n && s.waiters.Len() == 0 {
		s.free -= n
		s.mu.Unlock()
		return nil
	}
	w := &waiter{n, make(chan struct{})}
	place := s.waiters.PushBack(w)
	s.mu.Unlock()

	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.granted:
		// A release granted the permits before this goroutine got the mutex. They must not be
		// lost: they pass to the next waiters.
		s.free += n
	default:
		s.waiters.Remove(place)
	}
	// Either way the head may be another one now, whose weight fits.
	s.serveLocked()
	return context.Cause(ctx)
}

// Release returns n permits.
func (s *Queue) Release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	s.serveLocked()
}

// serveLocked grants permits to waiters from the head of the queue. It stops at the first one
// that does not fit: to serve a lighter one behind it would let light callers starve a heavy
// one.
func (s *Queue) serveLocked() {
	for {
		head := s.waiters.Front()
		if head == nil {
			return
		}
		w := head.Value.(*waiter)
		if w.weight > s.free {
			return
		}
		s.free -= w.weight
		s.waiters.Remove(head)
		close(w.granted)
	}
}
