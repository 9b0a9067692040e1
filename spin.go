package sema

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

// A Spin is a semaphore of two words without a queue, for critical sections of some
// dozens of nanoseconds. A caller that finds it full retries: first in a busy loop,
// then after yielding, then after increasing sleeps. The zero value is a binary
// semaphore, ready to use.
//
// It pays off inside data structures with very many instances, or where a critical
// section is shorter than a goroutine switch. It has no order, no fairness and no
// weights. Waiting uses processor time, and a holder that is descheduled keeps all
// other callers spinning. In doubt use a [Semaphore] or a sync.Mutex.
//
// Measured with goroutines that compete for it all the time
// (`go -C bench run . core --only spin`): for sections of ten nanoseconds a Spin is faster
// than a fair Semaphore. For those of a microsecond a sync.Mutex is faster, and with 64
// goroutines one wait in a thousand starves for as long as the load lasts.
type Spin struct {
	held  atomic.Uint32
	extra uint32 // capacity − 1, so that the zero value has one permit
}

// NewSpin returns a Spin with capacity permits. It panics unless 1 ≤ capacity < 2³².
func NewSpin(capacity int64) *Spin {
	if capacity < 1 || capacity > math.MaxUint32 {
		panic(fmt.Sprintf("sema: NewSpin(%d): want 1 ≤ capacity ≤ %d", capacity, int64(math.MaxUint32)))
	}
	return &Spin{extra: uint32(capacity - 1)}
}

// TryAcquire takes a permit if one is free, and reports whether it did.
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

// Acquire takes a permit. It retries until it succeeds, or until ctx ends and it returns
// the context's cause. A nil ctx is ErrInvalid.
func (s *Spin) Acquire(ctx context.Context) error {
	if ctx != nil && ctx.Err() == nil && s.TryAcquire() {
		return nil
	}
	return s.spin(ctx)
}

// The number of tries in the busy loop and with yields, and the bounds of a sleep. The
// busy loop is useful only if the holder can run at the same time.
const (
	busyTries  = 30
	yieldTries = 100
	minSleep   = 10 * time.Microsecond
	maxSleep   = time.Millisecond
)

func (s *Spin) spin(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "acquire", Err: ErrInvalid, Detail: nilContext}
	}
	busy := 0
	if runtime.GOMAXPROCS(0) > 1 {
		busy = busyTries
	}
	delay := minSleep
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
				_ = s.held.Load() // prevents removal of the loop, and keeps the cache line shared
			}
		case try < busy+yieldTries:
			runtime.Gosched()
		default:
			if !sleep(ctx, delay) {
				return context.Cause(ctx)
			}
			delay = min(2*delay, maxSleep)
		}
	}
}

// sleep waits for d or until ctx ends. It reports whether d passed.
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

// InUse returns the number of permits held now.
func (s *Spin) InUse() int64 { return int64(s.held.Load()) }
