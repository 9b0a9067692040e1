package fleet

import (
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

// A session exchanges batches with the store about one semaphore, while callers need
// it, and over and over again should the store lose it. It knows requests and their
// results; what permits are made of them is the strategy's part.
type session struct {
	client   *Client
	name     string
	settings *settings
	monitor  *sema.Monitor   // nil unless observed or diagnosed
	config   protocol.Config // to open it with
	labels   string
	strategy strategy
	failOpen *failOpen    // nil if it fails closed
	lender   lender       // nil unless blocks are lent on; fixed
	capacity atomic.Int64 // as the store last replied, like inUse
	inUse    atomic.Int64
	events   outbox

	mu         sync.Mutex     // guards what follows, and the strategy
	peer       *protocol.Peer // nil while there is no session
	lastTicket protocol.Ticket
	highest    protocol.Seq // that was seen, in all sessions
	waiters    map[protocol.Ticket]*waiter
	last       protocol.Reply // without its results
	driver     driver
	closed     bool
	ending     ending
	unheard    []*unheard
	counts     Exchanges
	tally      tally
	uncounted  int // waiters whose wait is being reported, for which the monitor adds one
	modes      comparison
}

// A strategy grants permits to the callers of a semaphore from what its session gets:
// leases, or blocks. All methods but acquire need the session's mutex.
type strategy interface {
	// acquire returns a permit for a call, or waits for one. It fails with errFailedOpen
	// when the local limit applies.
	acquire(ctx context.Context, c *call) (sema.Permit, error)

	// pending returns a request of the strategy itself, which a new session repeats.
	// Its Ticket is 0 if there is none.
	pending() protocol.Op

	// resolve handles a grant, a revocation, and any result of a request of its own. The
	// waiter is nil but for grants to callers.
	resolve(w *waiter, f protocol.Result)

	// replied handles a reply, after its results. A heartbeat is a batch without
	// requests.
	replied(r protocol.Reply, heartbeat bool)

	// reconfigured handles a change of the configuration, or of what applies: the
	// strategy or the local limit.
	reconfigured()

	// tend does what is due by time, and due returns when that is next; 0: never.
	tend(now protocol.Micros)
	due(now protocol.Micros) protocol.Micros

	// reject ends the waits of callers that the strategy has queued itself.
	reject(why error)

	// lose handles the end of the session: what it has granted is lost.
	lose(why string)

	// held returns the permits that callers hold, and usage what is cheaper to know.
	held() int64
	usage() usage
}

// usage is how callers use a strategy.
type usage struct {
	blocks   int64 // permits that a pool has, held or not
	ready    int64 // of these, permits that no caller holds
	waiters  int   // callers that the strategy has queued itself
	acquired int64 // permits that callers have ever acquired
}

func newSession(c *Client, name string, set *settings) *session {
	s := &session{
		client: c, name: name, settings: set, config: set.stored(), labels: textOf(set.labels), waiters: map[protocol.Ticket]*waiter{},
	}
	s.failOpen = newFailOpen(s)
	s.driver.pause = newBackoff()
	s.capacity.Store(set.config.Capacity)
	return s
}

// A waiter is one request to the store. The goroutine that removes it from
// session.waiters decides how it ends.
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

// newWaiter returns what waits for the result of a request. A call waits for one at a
// time, so that it has room for it.
func (s *session) newWaiter(c *call, req protocol.Op) *waiter {
	w := &c.waiter
	*w = waiter{op: req, call: c, ended: make(chan result, 1)}
	if s.monitor != nil {
		w.queued = make(chan struct{}, 1)
	}
	return w
}

// ask puts a waiter's request into the next batch.
func (s *session) ask(op string, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admitsLocked(op, w.op.Weight); err != nil || w.op.Weight == 0 {
		return err
	}
	w.op.Ticket = s.newTicketLocked()
	s.waiters[w.op.Ticket] = w
	if s.peer != nil {
		s.peer.Wish(w.op)
	}
	if w.carries = w.carries && s.carriesNow(); !w.carries {
		s.drive()
	}
	return nil
}

func (s *session) newTicketLocked() protocol.Ticket {
	s.lastTicket++
	return s.lastTicket
}

// admitsLocked fails if nothing is granted, as far as is known here, or if the local
// limit applies. A drain stays in effect while the store does not reply.
func (s *session) admitsLocked(op string, n int64) error {
	switch {
	case s.closed:
		return s.fault(op, n, sema.ErrClosed, "")
	case s.draining() && (n == 0 || s.failOpen.applies()):
		return s.fault(op, n, sema.ErrDraining, "")
	case s.failOpen.applies():
		return errFailedOpen
	}
	return nil
}

// draining reports whether the semaphore drains, as the store last replied. The mutex is
// held.
func (s *session) draining() bool { return s.last.Config.Draining }

// await waits for the result of a request. A caller that does not want the permit any
// more does not keep it.
func (s *session) await(ctx context.Context, c *call, w *waiter) (result, error) {
	select {
	case r := <-w.ended: // already
		return s.conclude(ctx, c, w, r)
	default:
	}
	wanted := true
	defer func() {
		if wanted { // an observer has panicked
			s.withdraw(w)
		}
	}()
	left, _ := s.overdue(c)
	limit := time.NewTimer(left)
	defer limit.Stop()
	for {
		select {
		case r := <-w.ended:
			wanted = false
			return s.conclude(ctx, c, w, r)
		case <-w.queued:
			s.noteQueuedLate(c)
		case <-ctx.Done():
			wanted = false
			s.withdraw(w)
			return result{}, context.Cause(ctx)
		case <-limit.C:
			left, err := s.overdue(c)
			if err == nil {
				limit.Reset(left)
				continue
			}
			wanted = false
			s.withdraw(w)
			return result{}, err
		}
	}
}

// conclude returns what a caller gets of a result.
func (s *session) conclude(ctx context.Context, c *call, w *waiter, r result) (result, error) {
	if w.op.Wait > 0 && errors.Is(r.err, sema.ErrTimeout) {
		<-ctx.Done() // the store's clock was ahead; this is about the context's deadline
	}
	switch {
	case ctx.Err() != nil:
		if r.lease != nil {
			r.lease.giveBack()
		}
		return result{}, context.Cause(ctx)
	case r.err == errFailedOpen:
		return result{}, errFailedOpen
	case r.err != nil:
		fault := s.rejection(c.op, c.weight(), r.err).(*sema.Error)
		if fault.After = r.after; fault.After > 0 && errors.Is(r.err, sema.ErrUnavailable) {
			fault.Detail = "the store has restarted and does not know yet what is held"
		}
		return result{}, fault
	}
	return r, nil
}

// withdraw cancels a waiter's request. What it was granted meanwhile is released.
func (s *session) withdraw(w *waiter) {
	s.mu.Lock()
	_, waiting := s.waiters[w.op.Ticket]
	if waiting {
		s.removeLocked(w.op.Ticket)
		s.cancel(w.op.Ticket)
	}
	s.mu.Unlock()
	if !waiting {
		if r := <-w.ended; r.lease != nil {
			r.lease.giveBack()
		}
	}
}

// removeLocked removes a waiter that is decided, nil if it is none.
func (s *session) removeLocked(ticket protocol.Ticket) *waiter {
	w := s.waiters[ticket]
	delete(s.waiters, ticket)
	if w != nil {
		s.tally.unqueue(w.call)
	}
	return w
}

// cancel cancels a request at the store. The mutex is held.
func (s *session) cancel(ticket protocol.Ticket) {
	if s.peer != nil {
		s.request(protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
	}
}

// request puts an operation into the next batch. The mutex is held, and there is a
// session.
func (s *session) request(op protocol.Op) {
	s.peer.Wish(op)
	s.drive()
}

// release sends a release. The mutex is held, and there is a session.
func (s *session) release(op protocol.Op) {
	s.counts.Releases++
	s.request(op)
}

// hint asks the store for what a notification is about.
func (s *session) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Notifications++
	s.poll()
}

// poll asks the store for news, if there is a session. The mutex is held.
func (s *session) poll() {
	if s.peer != nil {
		s.peer.Hint(s.client.clock())
		s.drive()
	}
}

// details describe an acquire in listings: its call site and the labels.
func (s *session) details() protocol.Details {
	return protocol.Details{Site: callsite.Here(), Labels: s.labels}
}

// waiting returns how many callers wait here. The mutex is held.
func (s *session) waiting() int {
	return len(s.waiters) + s.strategy.usage().waiters + s.failOpen.stats().Waiters - s.uncounted
}

// fault returns an error about this semaphore.
func (s *session) fault(op string, n int64, err error, detail string) error {
	return &sema.Error{Op: op, Name: s.settings.label, Weight: n, Capacity: s.capacity.Load(), InUse: max(0, s.inUse.Load()), Err: err, Detail: detail}
}

// rejection returns the error of a caller that was queued, or might have been.
func (s *session) rejection(op string, n int64, err error) error {
	fault := s.fault(op, n, err, "").(*sema.Error)
	s.mu.Lock()
	fault.Waiters = s.waiting()
	s.mu.Unlock()
	return fault
}

// silence returns the error of a call to which the store has not replied.
func (s *session) silence(c *call) error {
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
func (s *session) timeout(c *call) error {
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
