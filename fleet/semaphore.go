package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/callsite"
)

// A Semaphore is a semaphore of the fleet, as this process uses it. It is a
// [sema.Gate].
type Semaphore struct {
	client   *Client
	name     string
	options  Options
	config   protocol.Config // to make it with
	labels   string
	front    atomic.Pointer[generation] // of a pool, for those who need not wait; nil if there is none, or it is watched
	fallback *fallback                  // nil if it fails closed
	capacity atomic.Int64               // as last heard
	inUse    atomic.Int64

	mu         sync.Mutex
	peer       *protocol.Peer // nil while there is no session
	lastTicket protocol.Ticket
	highest    protocol.Seq // that was seen, in all sessions
	waiters    map[protocol.Ticket]*waiter
	leases     map[protocol.Seq]*grant // of the session
	last       protocol.Reply          // without its results
	pool       pool
	lender     lender // nil unless blocks are lent on; fixed
	driver     driver
	closed     bool
	quiet      chan struct{} // closed when there is nothing left to say; nil unless somebody wants to know
	abandoning bool          // permits that are out do not keep it from being quiet
	unsaid     int64         // releases of lost sessions that the engine may not have heard of, since it was closed
	leaving    int64         // permits that were out, and releases unsaid, when the session was told to leave; 0 when that was heard
	unheard    []*unheard
	counts     Counts
	telling    telling
	modes      comparison
}

// A waiter is one acquire. Whoever takes it out of Semaphore.waiters decides
// how it ends.
type waiter struct {
	op      protocol.Op
	ended   chan outcome // buffered
	of      *grant       // of a split whose caller has given up: what is split
	carries bool         // it would speak to the engine itself; after ask, it has to
}

// An outcome is a lease, or why there is none. A try at a pool has neither: its
// block is in the pool.
type outcome struct {
	lease *lease
	err   error
	after time.Duration // of a try: when the store can decide; 0: it has
}

func newSemaphore(c *Client, name string, o Options) (*Semaphore, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error()}
	}
	o = o.withDefaults()
	config := o.Config()
	if err := config.Check(); err != nil {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error()}
	}
	s := &Semaphore{
		client: c, name: name, options: o, config: config, labels: textOf(o.Labels), fallback: newFallback(name, o),
		waiters: map[protocol.Ticket]*waiter{}, leases: map[protocol.Seq]*grant{},
	}
	s.driver.pause = newBackoff()
	s.capacity.Store(o.Capacity)
	if o.Mode == Pooled {
		s.newFront()
	}
	return s, nil
}

// Name is the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// Scope is where [sema.AcquireAll] orders it.
func (s *Semaphore) Scope() sema.Scope { return sema.FleetScope }

// Acquire waits for n permits, in its turn among all machines. It fails with the
// context's cause when that ends first; with ErrTimeout when MaxWait has passed,
// or ErrUnavailable if the engine was not reached all that time; and like
// [sema.Semaphore.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	return s.acquire(ctx, "acquire", protocol.Op{Verb: protocol.Acquire, Weight: n})
}

// TryAcquire takes n permits if they are free and no caller waits, or else fails
// with ErrFull. It sends one batch and never queues. Where the store cannot decide
// yet, since a holder may have expired or the store has restarted, it fails with
// ErrFull or ErrUnavailable and the error's After is positive: the client asks the
// store until then, so that the next try is final. It fails with ErrUnavailable if
// the store does not reply within TryTimeout.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g := s.front.Load(); g != nil && n > 0 && ctx != nil {
		if p, err := g.local.TryAcquire(ctx, n); err == nil {
			return p, nil
		}
	}
	return s.acquire(ctx, "try", protocol.Op{Verb: protocol.Acquire, Weight: n, Try: true})
}

// errAside ends waits at the engine, to go on at the local limit.
var errAside = errors.New("failed open")

// errBack ends waits at the local limit, to go on at the engine.
var errBack = errors.New("the engine is back")

func (s *Semaphore) acquire(ctx context.Context, op string, wish protocol.Op) (permit sema.Permit, err error) {
	start := time.Now()
	switch {
	case ctx == nil:
		err = s.fault(op, wish.Weight, sema.ErrInvalid, "nil context")
	case wish.Weight < 0:
		err = s.fault(op, wish.Weight, sema.ErrInvalid, "want a weight of 0 or more")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		permit, err = s.acquireSomehow(ctx, op, wish, start)
	}
	if err != nil {
		s.refused(ctx, wish.Weight, start, err)
		return sema.Permit{}, err
	}
	return s.admitted(permit, start), nil
}

// acquireSomehow is from the engine, or from the local limit while that rules.
func (s *Semaphore) acquireSomehow(ctx context.Context, op string, wish protocol.Op, start time.Time) (permit sema.Permit, err error) {
	for {
		if s.options.Mode == Pooled {
			permit, err = s.acquirePooled(ctx, op, wish, start)
		} else {
			permit, err = s.acquireExact(ctx, op, wish, start)
		}
		if err != errAside {
			return permit, err
		}
		if permit, err = s.acquireAside(ctx, op, wish, start); err != errBack {
			return permit, err
		}
	}
}

// acquireExact asks the engine and waits. There is no lease for a weight of 0.
func (s *Semaphore) acquireExact(ctx context.Context, op string, wish protocol.Op, start time.Time) (sema.Permit, error) {
	if deadline, ok := ctx.Deadline(); ok {
		wish.Wait = max(1, protocol.Micros(time.Until(deadline).Microseconds()))
	}
	wish.Details = s.details()
	if err := s.tellQueued(op, wish.Weight); err != nil {
		return sema.Permit{}, err
	}
	w := &waiter{op: wish, ended: make(chan outcome, 1)}
	// Who cannot be called away, and waits for longer than an answer takes, can as
	// well ask for itself.
	w.carries = ctx.Done() == nil && s.options.MaxWait > patience
	if err := s.ask(op, w); err != nil || wish.Weight == 0 {
		return sema.Permit{}, err
	}
	if w.carries {
		s.carry()
	}
	o, err := s.await(ctx, op, w, start)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(o.lease.weight, o.lease), nil
}

// await is until a waiter's end. No permit is left with who does not want it any
// more.
func (s *Semaphore) await(ctx context.Context, op string, w *waiter, start time.Time) (outcome, error) {
	select {
	case o := <-w.ended: // already
		return s.concluded(ctx, op, w, o)
	default:
	}
	most := s.options.MaxWait
	if op == "try" { // it waits for a reply, not for its turn
		most = min(most, s.options.TryTimeout)
	}
	limit := time.NewTimer(time.Until(start.Add(most)))
	defer limit.Stop()
	select {
	case o := <-w.ended:
		return s.concluded(ctx, op, w, o)
	case <-ctx.Done():
		s.withdraw(w)
		return outcome{}, context.Cause(ctx)
	case <-limit.C:
		s.withdraw(w)
		if op == "try" {
			return outcome{}, s.silence(op, cmp.Or(w.op.Least, w.op.Weight), start)
		}
		return outcome{}, s.timeout(op, w.op.Weight, start)
	}
}

// concluded is what a waiter gets.
func (s *Semaphore) concluded(ctx context.Context, op string, w *waiter, o outcome) (outcome, error) {
	if w.op.Wait > 0 && errors.Is(o.err, sema.ErrTimeout) {
		<-ctx.Done() // the engine's clock was ahead; this is about the context's deadline
	}
	switch {
	case ctx.Err() != nil:
		if o.lease != nil {
			o.lease.giveBack()
		}
		return outcome{}, context.Cause(ctx)
	case o.err == errAside:
		return outcome{}, errAside
	case o.err != nil:
		fault := s.refusal(op, cmp.Or(w.op.Least, w.op.Weight), o.err).(*sema.Error)
		if fault.After = o.after; fault.After > 0 && errors.Is(o.err, sema.ErrUnavailable) {
			fault.Detail = "the store has restarted and does not know yet what is held"
		}
		return outcome{}, fault
	}
	return o, nil
}

// ask puts a waiter's wish into the next batch.
func (s *Semaphore) ask(op string, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(op, w.op.Weight); err != nil || w.op.Weight == 0 {
		return err
	}
	s.lastTicket++
	w.op.Ticket = s.lastTicket
	s.waiters[w.op.Ticket] = w
	if s.peer != nil {
		s.peer.Wish(w.op)
	}
	if w.carries = w.carries && s.carriesNow(); !w.carries {
		s.drive()
	}
	return nil
}

// open fails if nobody is let in, as far as is known here, or if the local limit
// rules. A drain is an order that outlasts an engine that goes away. The mutex
// is held.
func (s *Semaphore) open(op string, n int64) error {
	switch {
	case s.closed:
		return s.fault(op, n, sema.ErrClosed, "")
	case s.draining() && (n == 0 || s.fallback.rules()):
		return s.fault(op, n, sema.ErrDraining, "")
	case s.fallback.rules():
		return errAside
	}
	return nil
}

// draining is as last heard. The mutex is held.
func (s *Semaphore) draining() bool { return s.last.Config.Draining }

// withdraw takes a waiter's wish back. What it was granted meanwhile is
// released.
func (s *Semaphore) withdraw(w *waiter) {
	s.mu.Lock()
	_, waiting := s.waiters[w.op.Ticket]
	if waiting {
		delete(s.waiters, w.op.Ticket)
		s.unask(w.op.Ticket)
	}
	s.mu.Unlock()
	if !waiting {
		if o := <-w.ended; o.lease != nil {
			o.lease.giveBack()
		}
	}
}

// unask takes a ticket back. The mutex is held.
func (s *Semaphore) unask(ticket protocol.Ticket) {
	if s.peer != nil {
		s.peer.Wish(protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
		s.drive()
	}
}

// hint has the driver ask for news.
func (s *Semaphore) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Hints++
	if s.peer != nil {
		s.peer.Hint(s.client.clock())
		s.drive()
	}
}

// details describe an acquire in listings: its call site and the labels.
func (s *Semaphore) details() protocol.Details {
	return protocol.Details{Site: callsite.Here(), Labels: s.labels}
}

// fault is an error about this semaphore.
func (s *Semaphore) fault(op string, n int64, err error, detail string) error {
	return &sema.Error{Op: op, Name: s.name, Weight: n, Capacity: s.capacity.Load(), InUse: s.inUse.Load(), Err: err, Detail: detail}
}

// refusal is a fault of somebody who was in line, as the engine was last heard
// of.
func (s *Semaphore) refusal(op string, n int64, err error) error {
	fault := s.fault(op, n, err, "").(*sema.Error)
	s.mu.Lock()
	fault.Waiters = s.waiting()
	s.mu.Unlock()
	return fault
}

// waiting is how many wait here. The mutex is held.
func (s *Semaphore) waiting() int {
	return len(s.waiters) + s.pool.line.Len() + s.fallback.stats().Waiters
}

// silence returns the error of an operation to which the store has not replied.
func (s *Semaphore) silence(op string, n int64, start time.Time) error {
	s.mu.Lock()
	trouble := s.driver.trouble
	s.mu.Unlock()
	if trouble == nil {
		trouble = errSilent
	}
	return s.fault(op, n, sema.ErrUnavailable, fmt.Sprintf("for %v: %v", time.Since(start).Round(time.Millisecond), trouble))
}

// errSilent is the reason where an exchange neither failed nor got a reply.
var errSilent = errors.New("the store does not reply")

// timeout returns the error of a wait that has taken MaxWait: the queue is too long,
// or the store has not replied meanwhile.
func (s *Semaphore) timeout(op string, n int64, start time.Time) error {
	s.mu.Lock()
	silent := s.driver.silent(start)
	s.mu.Unlock()
	if silent {
		return s.silence(op, n, start)
	}
	fault := s.refusal(op, n, sema.ErrTimeout).(*sema.Error)
	fault.Detail = s.options.MaxWait.String()
	return fault
}

var _ sema.Gate = (*Semaphore)(nil)
