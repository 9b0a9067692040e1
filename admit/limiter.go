package admit

import (
	"context"
	"errors"
	"math"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// A limiter is a rate or a budget, with the abilities that make it cheap.
type limiter struct {
	rate.Limiter            // nil: none
	gate         *rate.Gate // the same, if it is one; it rejects without allocating
}

func newLimiter(l rate.Limiter) limiter {
	gate, _ := l.(*rate.Gate)
	return limiter{l, gate}
}

// quick reports whether [rate.Gate.TakeAt] can be used, or there is no limit.
func (l limiter) quick() bool { return l.Limiter == nil || l.gate != nil }

// refund returns a permit, which may be inert.
func (l limiter) refund(p sema.Permit) {
	if p.Weight() > 0 {
		l.Settle(p, 0)
	}
}

// try acquires n permits without waiting. A rate of package rate fails with a sentinel, so
// that nothing is allocated.
func (l limiter) try(ctx context.Context, n int64) (sema.Permit, error) {
	if l.gate == nil {
		return l.TryAcquire(ctx, n)
	}
	p, ok := l.gate.TryTake(n)
	switch {
	case ok:
		return p, nil
	case l.gate.Delay(n) == math.MaxInt64:
		return p, sema.ErrTooLarge
	}
	return p, sema.ErrFull
}

// clamp returns the most that the limiter grants at once, given the error of a request for n
// that was too large.
func (l limiter) clamp(n int64, err error) int64 {
	var fault *sema.Error
	switch {
	case l.gate != nil:
		return min(n, max(1, l.gate.Stats().Capacity))
	case errors.As(err, &fault) && fault.Capacity > 0:
		return min(n, fault.Capacity)
	}
	return n
}

// take acquires n permits for a request. It waits if the request may, and as long as it
// may. It returns the reason of a rejection, or the cause of a context that ended.
func (a *attempt) take(l limiter, n int64, why Reason) (p sema.Permit, _ rejected) {
	p, err := l.try(a.ctx, n)
	if errors.Is(err, sema.ErrTooLarge) {
		if clamped := l.clamp(n, err); clamped < n {
			a.c.clamped.Add(1)
			n = clamped
			p, err = l.try(a.ctx, n)
		}
	}
	if err == nil {
		return p, rejected{}
	}
	delay := l.Delay(n)
	if !a.mayWait && !errors.Is(err, sema.ErrFull) {
		return sema.Permit{}, a.failed(err, why, delay)
	}
	if !a.mayWait || delay > a.left() {
		return sema.Permit{}, rejected{reason: why, after: delay}
	}
	if a.degrades(why, delay) {
		return sema.Permit{}, rejected{cheap: true}
	}
	ctx, cancel := a.waiting()
	defer cancel()
	ctx, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	defer a.c.waits.onClose(func() { reject(sema.ErrDraining) })()
	p, err = l.Acquire(ctx, n)
	if err != nil {
		return p, a.failed(err, why, l.Delay(n))
	}
	return p, rejected{}
}
