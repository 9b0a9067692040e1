package fleet

import (
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
	settings *settings
	monitor  *sema.Monitor   // nil unless observed or diagnosed
	config   protocol.Config // to open it with
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
	counts     Exchanges
	tally      tally
	telling    telling
	uncounted  int // waiters whose wait is being reported, for which the monitor adds one
	modes      comparison
}

// A waiter is one request to the store. The goroutine that removes it from
// Semaphore.waiters decides how it ends.
type waiter struct {
	op      protocol.Op
	call    *call         // nil for a split
	ended   chan result   // buffered
	queued  chan struct{} // buffered; receives when the caller waits for others, or for the store; nil if nothing is observed
	of      *grant        // of a split whose caller has given up: what is split
	carries bool          // the caller may send the batch itself; after ask, it has to
}

// noteQueued notifies the caller that it waits.
func (w *waiter) noteQueued() {
	select {
	case w.queued <- struct{}{}:
	default:
	}
}

// A result is a lease, or why there is none. A try at a pool has neither: its
// block is in the pool.
type result struct {
	lease *lease
	err   error
	after time.Duration // of a try: when the store can decide; 0: it has
}

func newSemaphore(c *Client, name string, capacity int64, opts []Option) (*Semaphore, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	set, err := newSettings(name, capacity, opts)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{
		client: c, name: name, settings: set, config: set.stored(), labels: textOf(set.labels), fallback: newFallback(set),
		waiters: map[protocol.Ticket]*waiter{}, leases: map[protocol.Seq]*grant{},
	}
	s.driver.pause = newBackoff()
	s.capacity.Store(set.config.Capacity)
	s.monitor = sema.NewMonitor(monitored{s}, set.shared...)
	if set.mode == ModePooled {
		s.newFront()
	}
	return s, nil
}

// Name returns the name under which the semaphore is stored.
func (s *Semaphore) Name() string { return s.name }

// Scope returns [sema.FleetScope], by which [sema.AcquireAll] orders it.
func (s *Semaphore) Scope() sema.Scope { return sema.FleetScope }

// ask puts a waiter's request into the next batch.
func (s *Semaphore) ask(op string, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admitsLocked(op, w.op.Weight); err != nil || w.op.Weight == 0 {
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

// admitsLocked fails if nothing is granted, as far as is known here, or if the local
// limit applies. A drain stays in effect while the store does not reply.
func (s *Semaphore) admitsLocked(op string, n int64) error {
	switch {
	case s.closed:
		return s.fault(op, n, sema.ErrClosed, "")
	case s.draining() && (n == 0 || s.fallback.rules()):
		return s.fault(op, n, sema.ErrDraining, "")
	case s.fallback.rules():
		return errFailedOpen
	}
	return nil
}

// draining is as last heard. The mutex is held.
func (s *Semaphore) draining() bool { return s.last.Config.Draining }

// withdraw cancels a waiter's request. What it was granted meanwhile is released.
func (s *Semaphore) withdraw(w *waiter) {
	s.mu.Lock()
	_, waiting := s.waiters[w.op.Ticket]
	if waiting {
		s.removeLocked(w.op.Ticket)
		s.unask(w.op.Ticket)
	}
	s.mu.Unlock()
	if !waiting {
		if r := <-w.ended; r.lease != nil {
			r.lease.giveBack()
		}
	}
}

// removeLocked removes a waiter that is decided, nil if it is none.
func (s *Semaphore) removeLocked(ticket protocol.Ticket) *waiter {
	w := s.waiters[ticket]
	delete(s.waiters, ticket)
	if w != nil {
		s.tally.unqueue(w.call)
	}
	return w
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
	s.counts.Notifications++
	if s.peer != nil {
		s.peer.Hint(s.client.clock())
		s.drive()
	}
}

// details describe an acquire in listings: its call site and the labels.
func (s *Semaphore) details() protocol.Details {
	return protocol.Details{Site: callsite.Here(), Labels: s.labels}
}

// fault returns an error about this semaphore.
func (s *Semaphore) fault(op string, n int64, err error, detail string) error {
	return &sema.Error{Op: op, Name: s.settings.label, Weight: n, Capacity: s.capacity.Load(), InUse: s.inUse.Load(), Err: err, Detail: detail}
}

// rejection returns the error of a caller that was queued, or might have been.
func (s *Semaphore) rejection(op string, n int64, err error) error {
	fault := s.fault(op, n, err, "").(*sema.Error)
	s.mu.Lock()
	fault.Waiters = s.waiting()
	s.mu.Unlock()
	return fault
}

// waiting is how many wait here. The mutex is held.
func (s *Semaphore) waiting() int {
	return len(s.waiters) + s.pool.line.Len() + s.fallback.stats().Waiters - s.uncounted
}

// silence returns the error of a call to which the store has not replied.
func (s *Semaphore) silence(c *call) error {
	s.mu.Lock()
	trouble := s.driver.trouble
	s.mu.Unlock()
	if trouble == nil {
		trouble = errSilent
	}
	return s.fault(c.op, c.weight(), sema.ErrUnavailable, fmt.Sprintf("for %v: %v", time.Since(c.start).Round(time.Millisecond), trouble))
}

// errSilent is the reason where an exchange neither failed nor got a reply.
var errSilent = errors.New("the store does not reply")

// timeout returns the error of a wait that has taken MaxWait: the queue is too long,
// or the store has not replied meanwhile.
func (s *Semaphore) timeout(c *call) error {
	s.mu.Lock()
	silent := s.driver.silent(c.start)
	s.mu.Unlock()
	if silent {
		return s.silence(c)
	}
	fault := s.rejection(c.op, c.weight(), sema.ErrTimeout).(*sema.Error)
	fault.Detail = s.settings.maxWait.String()
	return fault
}

var _ sema.Gate = (*Semaphore)(nil)
