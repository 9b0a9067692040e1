package teaching

import "sync"

// A Cond is a semaphore of a mutex and a condition variable. Its waits cannot be cancelled,
// and it promises no order: a caller that arrives while a waiter wakes up may be first.
type Cond struct {
	mu    sync.Mutex
	freed sync.Cond // its lock is mu
	free  int       // guarded by mu
}

// NewCond returns a semaphore with n permits, all free.
func NewCond(n int) *Cond {
	s := &Cond{free: n}
	s.freed.L = &s.mu
	return s
}

// Acquire takes a permit. It waits while none is free.
func (s *Cond) Acquire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A loop, and not an if: between the signal and the moment at which this goroutine holds
	// the mutex again, another caller may have taken the permit.
	for s.free == 0 {
		s.freed.Wait() // unlocks mu while it waits
	}
	s.free--
}

// Release returns a permit and wakes one waiter.
func (s *Cond) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.freed.Signal() // one permit, one waiter
}
