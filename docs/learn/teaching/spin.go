package teaching

import (
	"context"
	"runtime"
	"sync/atomic"
)

// A Spin is a semaphore of one word. Waiters repeat a compare-and-swap until it succeeds: that
// costs processor time for as long as they wait, and the order is a matter of luck.
type Spin struct{ free atomic.Int64 }

// NewSpin returns a semaphore with n permits, all free.
func NewSpin(n int64) *Spin {
	s := &Spin{}
	s.free.Store(n)
	return s
}

// Acquire takes a permit, or returns the cause of a context that ended.
func (s *Spin) Acquire(ctx context.Context) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		// The swap succeeds only if the word still has the value that was read. So two callers
		// cannot take the same permit. Atomic operations of Go are sequentially consistent: what
		// a holder wrote before Release is visible to the caller that acquires after it.
		if free := s.free.Load(); free > 0 && s.free.CompareAndSwap(free, free-1) {
			return nil
		}
		runtime.Gosched() // the holder may need this processor
	}
}

// Release returns a permit.
func (s *Spin) Release() { s.free.Add(1) }
