package admit

import (
	"context"
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

// try acquires n permits without waiting.
func (l limiter) try(ctx context.Context, n int64) (sema.Permit, bool) {
	if l.gate != nil {
		return l.gate.TryTake(n)
	}
	p, err := l.TryAcquire(ctx, n)
	return p, err == nil
}

// clamp returns n, or the most that the limiter grants at once if that is less.
func (l limiter) clamp(n int64) int64 {
	if l.Delay(n) < math.MaxInt64 {
		return n
	}
	if sized, ok := l.Limiter.(interface{ Stats() sema.Stats }); ok {
		return min(n, max(1, sized.Stats().Capacity))
	}
	return n
}

// take acquires n permits for a request. It waits if the request may, and as long as it
// may. It returns the reason of a rejection, or the cause of a context that ended.
func (a *attempt) take(l limiter, n int64, why Reason) (p sema.Permit, _ rejected) {
	if p, ok := l.try(a.ctx, n); ok {
		return p, rejected{}
	}
	if clamped := l.clamp(n); clamped < n {
		a.c.clamped.Add(1)
		if p, ok := l.try(a.ctx, clamped); ok {
			return p, rejected{}
		}
		n = clamped
	}
	delay := l.Delay(n)
	if !a.mayWait || delay > a.left() {
		return sema.Permit{}, rejected{reason: why, after: delay}
	}
	if a.degrades(why, delay) {
		return sema.Permit{}, rejected{cheap: true}
	}
	ctx, cancel := a.waiting()
	defer cancel()
	p, err := l.Acquire(ctx, n)
	if err != nil {
		return p, a.failed(err, why, l.Delay(n))
	}
	return p, rejected{}
}
