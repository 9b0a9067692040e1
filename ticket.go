package sema

import (
	"context"
	"sync"
	"time"
)

// A Ticket is a request for permits that a select can wait for:
//
//	t := s.Request(1)
//	defer t.Cancel()
//	select {
//	case <-t.Ready():
//		p, err := t.Permit()
//		…
//	case <-tick:
//		…
//	}
type Ticket struct {
	sem    *Semaphore
	n      int64
	ready  chan struct{}
	waiter *waiter // nil: the request was never queued
	limit  *time.Timer
	watch  Wait

	mu              sync.Mutex // guards the fields below; no other lock is taken while it is held
	state           ticketState
	cancelRequested bool // Cancel was called, perhaps before the final status was delivered
	permit          Permit
	err             error
}

type ticketState uint8

const (
	ticketWaiting ticketState = iota
	ticketGranted             // the ticket holds the permit
	ticketTaken               // the caller has the permit, or there is none
)

// Request requests n permits without waiting for them. The request is queued like an
// Acquire, for at most MaxWait, until it is ready or cancelled. If Acquire would reject
// the request, the ticket is ready with that error.
func (s *Semaphore) Request(n int64) *Ticket {
	const op = "request"
	t := &Ticket{sem: s, n: n, ready: make(chan struct{})}
	if n <= 0 || n > MaxCapacity {
		p, err := s.acquireTrivial(context.Background(), op, n)
		t.permit, t.err, t.state = p, err, ticketTaken
		close(t.ready)
		return t
	}
	s.mustBeNew(op)
	v := pending
	t.watch = s.monitor.BeginTry(endedContext, n)
	if tr := t.watch.trace; tr != nil {
		tr.caller, tr.detached = identity{}, true // no caller is blocked
	}
	if s.monitor != nil {
		if v = s.core.tryOrWait(uint64(n)); v == pending {
			t.watch.Queued()
		}
	}
	if v == pending {
		v = s.core.request(t, uint64(n))
	}
	if v != pending {
		t.resolve(v)
	}
	return t
}

// request takes n permits for t, rejects the request or queues t, like enter.
func (c *core) request(t *Ticket, n uint64) status {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.admitLocked(n, true)
	c.countLocked(v)
	if v == pending {
		t.waiter = &waiter{n: n, ticket: t}
		c.enqueueLocked(t.waiter)
		if d := t.sem.maxWait; d > 0 {
			t.limit = time.AfterFunc(d, func() { t.withdraw(timedOut) })
		}
	}
	return v
}

// Ready returns a channel that is closed when the ticket has its permit or an error.
// After Cancel the channel is closed at once.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Permit returns the permit, or the error. The caller then owns the permit and must
// release it; Cancel no longer has an effect on it. Before Ready, Permit returns ErrFull
// and the request stays queued.
func (t *Ticket) Permit() (Permit, error) {
	t.mu.Lock()
	p, err, waiting := t.permit, t.err, t.state == ticketWaiting
	if t.state == ticketGranted {
		t.state = ticketTaken
	}
	t.mu.Unlock()
	if waiting {
		return Permit{}, t.sem.fault("request", t.n, ErrFull, "not ready yet")
	}
	return p, err
}

// Cancel cancels the request. If the permit was granted and Permit has not returned it
// yet, Cancel releases it. Calling Cancel again, or after Permit, has no effect, so it
// may be deferred.
func (t *Ticket) Cancel() {
	t.withdraw(cancelled)
	t.mu.Lock()
	t.cancelRequested = true
	p := t.takeCancelledLocked()
	t.mu.Unlock()
	p.Release()
}

// takeCancelledLocked takes the permit from a ticket that was granted and cancelled. It
// returns an inert permit otherwise.
func (t *Ticket) takeCancelledLocked() (p Permit) {
	if t.cancelRequested && t.state == ticketGranted {
		p = t.permit
		t.state, t.permit, t.err = ticketTaken, Permit{}, context.Canceled
	}
	return p
}

// withdraw removes the ticket from the queue, if it is still queued.
func (t *Ticket) withdraw(why status) {
	if t.waiter == nil {
		return
	}
	c := &t.sem.core
	c.mu.Lock()
	if t.waiter.status != queued {
		c.mu.Unlock()
		return
	}
	c.dequeueLocked(t.waiter)
	c.countLocked(why)
	c.unlock(c.settleLocked())
	t.resolve(why)
}

// resolve ends the wait. It is called once, with no lock held. The ticket becomes ready
// even if an observer panics; it then has no permit, because the permit was returned.
func (t *Ticket) resolve(v status) {
	s := t.sem
	if t.limit != nil {
		t.limit.Stop()
	}
	var p Permit
	err := context.Canceled
	defer func() {
		t.mu.Lock()
		t.permit, t.err, t.state = p, err, ticketTaken
		if p.Held() {
			t.state = ticketGranted
		}
		back := t.takeCancelledLocked()
		t.mu.Unlock()
		back.Release()
		close(t.ready)
	}()
	p, err = s.conclude(endedContext, "request", &t.watch, v)
}

// endedContext provides the error of a cancelled ticket.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
