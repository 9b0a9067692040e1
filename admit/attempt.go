package admit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
	"github.com/sema-go/sema/internal/seal"
	"github.com/sema-go/sema/wfq"
)

// An attempt is a request on its way through the checks of a controller, with what it has
// taken so far.
type attempt struct {
	c       *Controller
	k       *class
	ctx     context.Context
	mayWait bool
	request Request
	until   time.Duration // the deadline, since epoch; 0: not computed, see left

	taken
}

// taken is what an attempt has taken, to be refunded if a later check fails.
type taken struct {
	probe  Attempt     // of the breaker
	rate   sema.Permit // of Config.Rate
	own    sema.Permit // of the class's rate
	budget sema.Permit
	permit sema.Permit // of the queue
}

// rejected is why a check did not let a request pass. The zero value is that it did.
type rejected struct {
	reason Reason
	after  time.Duration
	cause  error // of a context that ended
	cheap  bool  // Config.Degrade has decided to serve it cheaply
}

// any reports whether a check failed. It compares field by field: comparing structs with
// an interface in them costs as much as a lock.
func (r *rejected) any() bool { return r.reason != 0 || r.cheap || r.cause != nil }

// decide runs the checks.
func (c *Controller) decide(ctx context.Context, r Request, mayWait bool) (Admission, error) {
	if ctx == nil || r.Weight < 0 || r.Cost < 0 {
		return Admission{}, c.invalid(ctx, r)
	}
	if ctx.Err() != nil {
		return Admission{}, context.Cause(ctx)
	}
	if r.Weight == 0 {
		r.Weight = 1
	}
	a := attempt{c: c, k: c.classes.of(r.Class), ctx: ctx, mayWait: mayWait, request: r}
	ended := false
	defer func() {
		if !ended { // a function of the user has panicked
			a.refund()
		}
	}()
	why := a.run()
	ended = true
	if why.any() {
		return a.rejected(why)
	}
	return a.admitted(false), nil
}

// run performs the checks in their order. What it has taken when a check fails is in taken.
func (a *attempt) run() rejected {
	c := a.c
	if s := c.switches.Load(); s != 0 || a.k.shedding.Load() {
		return a.switched(s)
	}
	if why := a.forecast(); why.any() {
		return why
	}
	if c.breaker != nil {
		var wait time.Duration
		if a.probe, wait = c.breaker.allow(); wait > 0 {
			return rejected{reason: ReasonBreaker, after: wait}
		}
	}
	var why rejected
	if c.rate.Limiter != nil {
		if a.rate, why = a.take(c.rate, 1, ReasonRate); why.any() {
			return why
		}
	}
	if a.k.rate.Limiter != nil {
		if a.own, why = a.take(a.k.rate, 1, ReasonClassRate); why.any() {
			return why
		}
	}
	if c.budget.Limiter != nil && a.request.Cost > 0 {
		if a.budget, why = a.take(c.budget, a.request.Cost, ReasonBudget); why.any() {
			return why
		}
	}
	a.permit, why = a.enter()
	return why
}

// switched returns why an operator's switch rejects the request.
func (a *attempt) switched(switches uint32) rejected {
	if switches&drainingSwitch != 0 {
		return rejected{reason: ReasonDraining}
	}
	return rejected{reason: ReasonShedding}
}

// forecast rejects a request that the queue would not serve in time, before it takes
// anything. It lowers a weight that is too large.
func (a *attempt) forecast() rejected {
	wait, err := a.k.queue.Forecast(a.request.Weight)
	if err == sema.ErrTooLarge {
		a.clampWeight()
		wait, err = a.k.queue.Forecast(a.request.Weight)
	}
	switch {
	case err != nil:
		return a.failed(err, ReasonFull, a.expectedWait())
	case wait == 0:
		return rejected{}
	case !a.mayWait:
		return rejected{reason: ReasonFull, after: wait}
	case a.late(wait):
		return rejected{reason: ReasonDeadline, after: wait}
	case a.degrades(ReasonFull, wait):
		return rejected{cheap: true}
	}
	return rejected{}
}

// late reports whether the request would probably wait for longer than it may, given how
// long it is expected to wait. Half of all requests wait for longer than expected, and would
// time out in vain. So there is a margin.
//
// A heavy request gets the margin of a light one: judged by its own wait, which is longer, it
// would never find the queue short enough, since light ones keep it at the margin.
func (a *attempt) late(wait time.Duration) bool {
	left := a.left()
	return wait > left || a.k.queue.CautiousWait(seal.Key{}) > left
}

// clampWeight lowers the weight to what the class may have at once.
func (a *attempt) clampWeight() {
	a.c.clamped.Add(1)
	a.request.Weight = min(a.request.Weight, max(1, a.k.queue.Stats().Capacity))
}

// enter acquires the permits of the queue. A weight that has become too large meanwhile,
// because the limit was lowered, is lowered too.
func (a *attempt) enter() (p sema.Permit, why rejected) {
	const tries = 3
	for range tries {
		var err error
		if p, err = a.acquire(); err == nil {
			return p, rejected{}
		}
		if !errors.Is(err, sema.ErrTooLarge) {
			return p, a.failed(err, ReasonFull, a.expectedWait())
		}
		a.clampWeight()
	}
	return p, rejected{reason: ReasonFull}
}

// acquire acquires the permits of the queue.
func (a *attempt) acquire() (sema.Permit, error) {
	if !a.mayWait {
		return a.k.queue.TryAcquire(a.ctx, a.request.Weight)
	}
	if a.c.config.MaxWait == 0 {
		return a.k.queue.Acquire(a.ctx, a.request.Weight)
	}
	if wait, err := a.k.queue.Forecast(a.request.Weight); wait == 0 && err == nil {
		if p, err := a.k.queue.TryAcquire(a.ctx, a.request.Weight); err == nil {
			return p, nil // without a timer
		}
	}
	ctx, cancel := a.waiting()
	defer cancel()
	return a.k.queue.Acquire(ctx, a.request.Weight)
}

func (a *attempt) expectedWait() time.Duration { return a.k.queue.ExpectedWait(a.request.Weight) }

// failed translates the error of a gate. why is the reason if the gate was full, and after
// the time to wait before a retry then.
func (a *attempt) failed(err error, why Reason, after time.Duration) rejected {
	switch {
	case a.ctx.Err() != nil:
		return rejected{cause: context.Cause(a.ctx)}
	case errors.Is(err, wfq.ErrOverloaded):
		return rejected{reason: ReasonOverloaded, after: after}
	case errors.Is(err, sema.ErrQueueFull) && why == ReasonFull:
		return rejected{reason: ReasonQueueFull, after: after}
	case errors.Is(err, sema.ErrTimeout):
		return rejected{reason: ReasonTimeout, after: after}
	case errors.Is(err, sema.ErrDraining), errors.Is(err, sema.ErrClosed):
		return rejected{reason: ReasonDraining}
	case errors.Is(err, sema.ErrUnavailable):
		return rejected{reason: ReasonUnavailable, after: time.Second}
	default:
		return rejected{reason: why, after: after}
	}
}

// left returns how long the request may still wait.
func (a *attempt) left() time.Duration {
	if a.until == 0 {
		a.computeDeadline()
	}
	if a.until == math.MaxInt64 {
		return math.MaxInt64
	}
	return a.until - monotonic.Since()
}

// computeDeadline sets until to the earlier of the deadline of the context and the end of
// the wait budget, or to math.MaxInt64 if there is neither.
func (a *attempt) computeDeadline() {
	a.until = math.MaxInt64
	now := monotonic.Since()
	if a.c.config.MaxWait > 0 {
		a.until = later(now, a.c.config.MaxWait)
	}
	if deadline, ok := a.ctx.Deadline(); ok {
		a.until = min(a.until, later(now, time.Until(deadline)))
	}
}

// waiting returns a context for a wait, which ends with ErrTimeout at the end of the wait
// budget.
func (a *attempt) waiting() (context.Context, context.CancelFunc) {
	if a.c.config.MaxWait == 0 {
		return a.ctx, func() {}
	}
	return context.WithTimeoutCause(a.ctx, a.left(), sema.ErrTimeout)
}

// degrades reports whether the request gets a cheap response instead of a wait or a
// rejection.
func (a *attempt) degrades(why Reason, wait time.Duration) bool {
	return a.c.config.Degrade != nil && a.c.config.Degrade(a.c.load(a.k, why, wait))
}

// rejected refunds what the request has taken, and rejects it or serves it cheaply.
func (a *attempt) rejected(why rejected) (Admission, error) {
	a.refund()
	if why.cause != nil {
		return Admission{}, why.cause
	}
	c := a.c
	if why.cheap || why.reason != ReasonDraining && a.degrades(why.reason, why.after) {
		c.degraded.Add(1)
		return a.admitted(true), nil
	}
	c.shed[why.reason].Add(1)
	a.k.shed[why.reason].Add(1)
	r := a.k.rejection(c.config.Name, why.reason, why.after)
	c.log.shed(c, r)
	for _, o := range c.config.Observers {
		o.Observe(sema.Event{Kind: sema.EventRejected, Name: c.config.Name, Class: a.k.name, Weight: a.request.Weight, Err: r})
	}
	return Admission{}, r
}

// refund returns what the request has taken.
func (a *attempt) refund() {
	a.c.rate.refund(a.rate)
	a.k.rate.refund(a.own)
	a.c.budget.refund(a.budget)
	a.probe.Done(Ignored, 0)
	a.permit.Release()
	a.taken = taken{}
}

// invalid returns the error of a request that is no valid one.
func (c *Controller) invalid(ctx context.Context, r Request) error {
	if ctx == nil {
		return &sema.Error{Op: "admit", Name: c.config.Name, Err: sema.ErrInvalid, Detail: "nil context"}
	}
	return &sema.Error{Op: "admit", Name: c.config.Name, Err: sema.ErrInvalid,
		Detail: fmt.Sprintf("weight %d and cost %d", r.Weight, r.Cost), Advice: "pass a weight and a cost of 0 or more"}
}

// later returns now + d, or the latest time if the sum overflows: a duration of
// math.MaxInt64 means for ever.
func later(now, d time.Duration) time.Duration {
	if sum := now + d; d <= 0 || sum > now {
		return sum
	}
	return math.MaxInt64
}
