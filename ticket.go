package sema

import (
	"context"
	"sync"
	"time"
)

// A Ticket is a request for permits to wait for in a select:
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
	waiter *waiter // queued until decided; nil if it never had to
	limit  *time.Timer
	watch  Wait

	mu       sync.Mutex // guards the rest; no other lock is taken while it is held
	state    ticketState
	unwanted bool // cancelled when the final status was known but not yet told
	permit   Permit
	err      error
}

type ticketState uint8

const (
	ticketWaiting ticketState = iota
	ticketGranted             // the permits are the ticket's
	ticketTaken               // they are the caller's, or never will be
)

// Request asks for n permits without waiting for them. It is queued like
// an Acquire, for MaxWait at most, until it is ready or cancelled. Whatever
// Acquire would reject makes a ticket that is ready with that error.
func (s *Semaphore) Request(n int64) *Ticket {
	const op = "request"
	t := &Ticket{sem: s, n: n, ready: make(chan struct{})}
	if n <= 0 || n > MaxCapacity {
		p, err := s.unusual(context.Background(), op, n)
		t.permit, t.err, t.state = p, err, ticketTaken
		close(t.ready)
		return t
	}
	s.mustBeNew(op)
	v := pending
	t.watch = s.monitor.begin(endedContext, n)
	if more := t.watch.more; more != nil {
		more.by, more.detached = identity{}, true // no caller is blocked by it
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

// request is enter for a ticket.
func (c *core) request(t *Ticket, n uint64) status {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.admit(n, true)
	c.tally(v)
	if v == pending {
		t.waiter = &waiter{n: n, ticket: t}
		c.enqueue(t.waiter)
		if d := t.sem.maxWait; d > 0 {
			t.limit = time.AfterFunc(d, func() { t.withdraw(timedOut) })
		}
	}
	return v
}

// Ready is closed when the ticket has its permit, or an error. After Cancel
// that is at once.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Permit is the permit, or why there is none. It is the caller's from then on:
// to give it back is up to Release, and Cancel no longer touches it. Before
// Ready it returns ErrFull and the ticket goes on waiting.
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

// Cancel gives the request up. If its permit is there and was not yet taken
// with Permit, it goes back. Calling it again, or after Permit, does nothing,
// so it may be deferred.
func (t *Ticket) Cancel() {
	t.withdraw(cancelled)
	t.mu.Lock()
	t.unwanted = true
	p := t.takeUnwanted()
	t.mu.Unlock()
	p.Release()
}

// takeUnwanted takes a permit that came for a ticket nobody wants any more.
func (t *Ticket) takeUnwanted() (p Permit) {
	if t.unwanted && t.state == ticketGranted {
		p = t.permit
		t.state, t.permit, t.err = ticketTaken, Permit{}, context.Canceled
	}
	return p
}

// withdraw takes the ticket off the queue, if it still stands there.
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
	c.dequeue(t.waiter)
	c.tally(why)
	c.unlock(c.settle())
	t.resolve(why)
}

// resolve ends the wait. It is called once, with no lock held, and leaves a
// ticket that is ready even if an observer panics: then without its permit,
// which went back.
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
		back := t.takeUnwanted()
		t.mu.Unlock()
		back.Release()
		close(t.ready)
	}()
	p, err = s.conclude(endedContext, "request", &t.watch, v)
}

// endedContext gives a cancelled ticket its error.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
