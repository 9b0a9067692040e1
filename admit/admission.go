package admit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
)

// An Admission is the right to process a request. It is a small value that may be copied,
// stored and passed on. All copies are the same admission: only the first Done of any of
// them has an effect. The zero Admission is inert.
//
// It is live while its permit is held, so most admissions need no state of their own.
type Admission struct {
	c      *Controller
	permit sema.Permit   // of the queue, or of Controller.standIns
	start  time.Duration // when the request was admitted, by the monotonic clock; 0 unless requests are timed
	ticket *ticket       // nil: the request has neither a budget nor a probe, and is not degraded
}

// A ticket is the part of an admission that few have. It is reused by the Done that ended
// its admission. Others check under the mutex whether their permit is still held.
type ticket struct {
	mu       sync.Mutex // guards what follows
	degraded bool
	probe    Attempt // of a breaker that is half-open
	budget   sema.Permit
}

var tickets = sync.Pool{New: func() any { return new(ticket) }}

func newTicket(degraded bool, probe Attempt, budget sema.Permit) *ticket {
	t := tickets.Get().(*ticket)
	t.mu.Lock() // copies of earlier admissions may read it
	t.degraded, t.probe, t.budget = degraded, probe, budget
	t.mu.Unlock()
	return t
}

// admitted returns the admission of an attempt that has passed the checks. The duration of
// the request begins here: its wait is no evidence about the dependency.
func (a *attempt) admitted(degraded bool) Admission {
	admission := Admission{c: a.c, permit: a.permit}
	if a.c.timed {
		admission.start = monotonic.Since()
	}
	if !a.permit.Held() { // degraded, or the gate behind the queue spends its permits
		admission.permit = a.c.standIns.Permit(1)
	}
	if degraded || a.probe.episode != 0 || a.budget.Weight() > 0 {
		admission.ticket = newTicket(degraded, a.probe, a.budget)
	}
	return admission
}

// A standInOwner is the owner of the permits of admissions without a permit of the queue.
// With them, too, the first Done can be distinguished from others.
type standInOwner struct{}

// TakeBack implements [sema.Owner].
func (standInOwner) TakeBack(int64) {}

// Done ends the request. Only the first call has an effect. Any goroutine may call it. The
// permit is released first: what follows may call functions of the user, which may panic.
func (a Admission) Done(o Result) {
	if !a.permit.ReleaseFirst() {
		return
	}
	probe := Attempt{breaker: a.c.breaker}
	if a.ticket != nil {
		if t := a.ticket.end(); t.degraded {
			o, probe = Ignored, Attempt{} // a cheap response is no evidence about the dependency
		} else {
			probe = t.probe
		}
	}
	if !a.c.timed || o == Ignored {
		probe.Done(Ignored, 0)
		return
	}
	now := monotonic.Since()
	probe.report(o, now-a.start, now)
	a.c.adapter.sample(o, now-a.start, now, a.permit.Weight())
}

// ended is what the ticket of an admission that has ended contained.
type ended struct {
	degraded bool
	probe    Attempt
}

// end returns what the ticket contains, and reuses it.
func (t *ticket) end() ended {
	t.mu.Lock()
	e := ended{t.degraded, t.probe}
	t.degraded, t.probe, t.budget = false, Attempt{}, sema.Permit{} // the pool is not to keep what they refer to
	t.mu.Unlock()
	tickets.Put(t)
	return e
}

// Settle corrects what the request has cost, once that is known: less than [Request.Cost]
// is refunded to the budget, and more is charged. Only the first Settle has an effect, and
// only before Done. A request whose Cost was 0 has no part in the budget.
func (a Admission) Settle(cost int64) {
	a.view(func(t *ticket) {
		if t.budget.Weight() > 0 {
			a.c.budget.Settle(t.budget, cost)
		}
	})
}

// Degraded reports whether [Config.Degrade] decided that the request gets a cheap response.
// Such a request holds no permits.
func (a Admission) Degraded() bool {
	degraded := false
	a.view(func(t *ticket) { degraded = t.degraded })
	return degraded
}

// Context returns a context for the work of the request: it carries the admission, for
// [FromContext], it identifies the holder of the permit, so that queues behind it can pass its
// tier on, and it ends when the permit is lost. Call cancel when done.
func (a Admission) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if parent == nil {
		parent = context.Background()
	}
	parent = context.WithValue(parent, admissionKey{}, a)
	if _, ok := a.permit.Owner().(standInOwner); ok || !a.permit.Held() {
		return sema.Permit{}.Context(parent)
	}
	return a.permit.Context(parent)
}

type admissionKey struct{}

// FromContext returns the admission of the request that a handler, or a function of
// [Controller.Do], serves: to settle its cost, or to see whether it is degraded. Without one
// it returns the zero Admission.
func FromContext(ctx context.Context) Admission {
	a, _ := ctx.Value(admissionKey{}).(Admission)
	return a
}

// view calls fn with the ticket if there is one and the admission is live. Done waits for
// the mutex before it reuses the ticket.
func (a Admission) view(fn func(*ticket)) {
	t := a.ticket
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.permit.Held() {
		fn(t)
	}
}

// ResultOf returns the result of a call that returned err: OK for nil, Ignored for a
// cancelled context, Dropped for a timeout and for what wraps ErrFull or ErrUnavailable,
// and Failed for all others.
func ResultOf(err error) Result {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Ignored
	case timedOut(err), errors.Is(err, sema.ErrTimeout), errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrUnavailable):
		return Dropped
	default:
		return Failed
	}
}

// timedOut reports whether err is a timeout, of a context or of package net.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
