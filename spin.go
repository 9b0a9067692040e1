package sema

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

// Spin is a semaphore of two words without a queue, for sections of some
// dozens of nanoseconds: a caller that finds it full tries again, for a little
// while at once, then after yielding, then after ever longer sleeps. The zero
// value is a binary semaphore, ready to use.
//
// It pays inside data structures of which there are very many, or where a
// critical section is shorter than the switch to another goroutine. It knows
// no order, no fairness and no weights; waiting burns processor time, and a
// holder that is descheduled keeps all others spinning. In doubt use a
// [Semaphore] or a sync.Mutex.
type Spin struct {
	held  atomic.Uint32
	extra uint32 // capacity − 1, so that the zero value has one permit
}

// NewSpin makes a Spin with capacity permits. It panics unless
// 1 ≤ capacity < 2³².
func NewSpin(capacity int64) *Spin {
	if capacity < 1 || capacity > math.MaxUint32 {
		panic(fmt.Sprintf("sema: NewSpin(%d): want 1 ≤ capacity ≤ %d", capacity, int64(math.MaxUint32)))
	}
	return &Spin{extra: uint32(capacity - 1)}
}

// TryAcquire takes a permit if one is free.
func (s *Spin) TryAcquire() bool {
	for {
		held := s.held.Load()
		if held > s.extra {
			return false
		}
		if s.held.CompareAndSwap(held, held+1) {
			return true
		}
	}
}

// Acquire takes a permit, trying until it succeeds or ctx ends; then it
// returns the context's cause. A nil ctx is ErrInvalid.
func (s *Spin) Acquire(ctx context.Context) error {
	if ctx != nil && ctx.Err() == nil && s.TryAcquire() {
		return nil
	}
	return s.spin(ctx)
}

// How long each way of waiting is tried. Spinning makes sense only where the
// holder can run meanwhile.
const (
	busyTries  = 30
	yieldTries = 100
	napAtFirst = 10 * time.Microsecond
	napAtMost  = time.Millisecond
)

func (s *Spin) spin(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "acquire", Err: ErrInvalid, Detail: nilContext}
	}
	busy := 0
	if runtime.GOMAXPROCS(0) > 1 {
		busy = busyTries
	}
	nap := napAtFirst
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.TryAcquire() {
			return nil
		}
		switch {
		case try < busy:
			for range try {
				_ = s.held.Load() // keeps the loop, and the line shared
			}
		case try < busy+yieldTries:
			runtime.Gosched()
		default:
			if !sleep(ctx, nap) {
				return context.Cause(ctx)
			}
			nap = min(2*nap, napAtMost)
		}
	}
}

// sleep reports whether it slept for d, and not until ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := newTimer(d)
	defer recycleTimer(timer)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Release returns a permit. It panics if none is held.
func (s *Spin) Release() {
	for {
		held := s.held.Load()
		if held == 0 {
			panic("sema: Spin: released more than acquired")
		}
		if s.held.CompareAndSwap(held, held-1) {
			return
		}
	}
}

// InUse is how many permits are held now.
func (s *Spin) InUse() int64 { return int64(s.held.Load()) }
