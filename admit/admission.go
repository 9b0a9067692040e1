package admit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// An Admission is the right to process a request. It is a small value that may be copied,
// stored and passed on. All copies are the same admission: only the first Done of any of
// them has an effect. The zero Admission is inert.
type Admission struct {
	ticket *ticket
	gen    uint64
}

// A ticket is the state that the copies of an admission share. It is reused: an admission
// is live while its generation equals that of the ticket.
type ticket struct {
	mu       sync.Mutex // guards what follows
	gen      uint64
	c        *Controller
	degraded bool
	start    time.Duration // when the request was admitted, since epoch; 0 unless requests are timed
	probe    Attempt       // of the breaker
	budget   sema.Permit
	permit   sema.Permit // of the queue
}

var tickets = sync.Pool{New: func() any { return new(ticket) }}

// admitted returns the admission of an attempt that has passed the checks. The duration of
// the request begins here: its wait is no evidence about the dependency.
func (a *attempt) admitted(degraded bool) Admission {
	var start time.Duration
	if a.c.timed {
		start = sinceEpoch()
	}
	t := tickets.Get().(*ticket)
	// No lock is needed: copies of earlier admissions read only the generation, which does
	// not change here.
	t.c, t.degraded, t.start = a.c, degraded, start
	t.probe, t.budget, t.permit = a.probe, a.budget, a.permit
	return Admission{t, t.gen}
}

// Done ends the request. Only the first call has an effect. Any goroutine may call it.
func (a Admission) Done(o Result) {
	t := a.ticket
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.gen != a.gen {
		t.mu.Unlock()
		return
	}
	t.gen++
	c, start, probe, permit := t.c, t.start, t.probe, t.permit
	if t.degraded {
		o = Ignored // a cheap response is no evidence about the dependency
	}
	// The pool is not to keep what the admission referred to.
	t.c, t.probe.breaker, t.budget, t.permit = nil, nil, sema.Permit{}, sema.Permit{}
	t.mu.Unlock()
	tickets.Put(t)
	c.done(start, probe, permit, o)
}

// done counts the result of a request, and returns its permits, also if a function of the
// user panics.
func (c *Controller) done(start time.Duration, probe Attempt, permit sema.Permit, o Result) {
	defer permit.Release()
	if c.timed && o != Ignored {
		now := sinceEpoch()
		probe.report(o, now-start, now)
		c.adapter.sample(o, now-start, now)
	} else {
		probe.Done(Ignored, 0)
	}
}

// Settle corrects what the request has cost, once that is known: less than [Request.Cost]
// is refunded to the budget, and more is charged. Only the first Settle has an effect, and
// only before Done. A request whose Cost was 0 has no part in the budget.
func (a Admission) Settle(cost int64) {
	t := a.ticket
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gen == a.gen && t.budget.Weight() > 0 {
		t.c.budget.Settle(t.budget, cost)
	}
}

// Degraded reports whether [Config.Degrade] decided that the request gets a cheap response.
// Such a request holds no permits.
func (a Admission) Degraded() bool {
	degraded := false
	a.view(func(t *ticket) { degraded = t.degraded })
	return degraded
}

// Context returns a context for the work of the request: it identifies the holder of the
// permit, so that queues behind it can pass its tier on, and it ends when the permit is
// lost. Call cancel when done.
func (a Admission) Context(parent context.Context) (context.Context, context.CancelFunc) {
	var permit sema.Permit
	a.view(func(t *ticket) { permit = t.permit })
	return permit.Context(parent)
}

// view calls fn with the ticket if the admission is live.
func (a Admission) view(fn func(*ticket)) {
	t := a.ticket
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gen == a.gen {
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
