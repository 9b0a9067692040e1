package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/callsite"
)

// A session exchanges batches with the store about one semaphore. It opens a session at the
// store while callers need one, and again if the store loses it. It handles requests and
// their results; the strategy turns results into permits.
type session struct {
	client   *Client
	name     string
	settings *settings
	monitor  *sema.Monitor   // nil unless observed or diagnosed
	config   protocol.Config // to open the semaphore with
	labels   string
	strategy strategy
	failOpen *failOpen    // nil: fail closed
	lender   lender       // nil unless a keeper leases blocks; fixed
	capacity atomic.Int64 // from the last reply, like inUse
	inUse    atomic.Int64
	events   outbox

	lastDetails atomic.Pointer[protocol.Details] // of the last acquire; nil before the first

	mu         sync.Mutex     // guards the fields below, and the strategy
	peer       *protocol.Peer // nil while no session is open
	lastTicket protocol.Ticket
	highest    protocol.Seq // highest lease received, in all sessions
	waiters    map[protocol.Ticket]*waiter
	last       protocol.Reply // without its results
	driver     driver
	closed     bool
	ending     ending
	flushes    []*pendingFlush
	counts     Exchanges
	spendings  spendings // of a rate
	latest     *grant    // of a rate: the last grant
	owed       debt
	pause      pause
	tally      tally
	uncounted  int // waiters whose wait is being reported: the monitor adds one for each
	modeCheck  modeSchedule
}

// A strategy grants permits to the callers of a semaphore from the leases or blocks of its
// session. All methods but acquire require the session's mutex.
type strategy interface {
	// acquire returns a permit for a call, or waits for one. It fails with errFailedOpen
	// if the local limit applies.
	acquire(ctx context.Context, c *call) (sema.Permit, error)

	// pendingLocked returns the strategy's own request, which a new session repeats. Its
	// Ticket is 0 if there is none.
	pendingLocked() protocol.Op

	// resolveLocked handles a grant, a revocation, or any result of the strategy's own
	// request. The waiter is nil except for grants to callers.
	resolveLocked(w *waiter, f protocol.Result)

	// repliedLocked handles a reply after its results. A heartbeat is a batch without
	// operations.
	repliedLocked(r protocol.Reply, heartbeat bool)

	// reconfiguredLocked handles a change of the configuration, or of whether the local
	// limit applies.
	reconfiguredLocked()

	// tendLocked does periodic work. dueLocked returns when it is due next; 0: never.
	tendLocked(now protocol.Micros)
	dueLocked(now protocol.Micros) protocol.Micros

	// rejectLocked ends the waits of callers in the strategy's own queue.
	rejectLocked(why error)

	// loseLocked handles the loss of the session: its grants are lost.
	loseLocked(why string)

	// heldLocked returns the number of permits that callers hold. usageLocked is cheaper.
	heldLocked() int64
	usageLocked() usage
}

// A usage is the state of a strategy.
type usage struct {
	blocks   int64 // permits of a pool, held or not
	ready    int64 // permits of a pool that no caller holds
	waiters  int   // callers in the strategy's own queue
	acquired int64 // total number of acquired permits
}

func newSession(c *Client, name string, set *settings) *session {
	s := &session{
		client: c, name: name, settings: set, config: set.stored(), labels: textOf(set.labels), waiters: map[protocol.Ticket]*waiter{},
	}
	s.failOpen = newFailOpen(s)
	s.capacity.Store(set.config.Capacity)
	return s
}

// A waiter waits for the result of one request. The goroutine that removes it from
// session.waiters decides the result.
type waiter struct {
	op     *protocol.Op  // the one of the call, or of a split
	call   *call         // nil for a split
	ended  chan result   // buffered
	queued chan struct{} // buffered; receives when the caller starts to wait for others, or for the store; nil if not observed
	of     *grant        // the grant to split, if the caller of the split has given up
	inline bool          // the caller may send the batch itself; set by submit if it must
	held   bool          // it is not requested before the pause ends
}

// noteQueued notifies the caller that it waits.
func (w *waiter) noteQueued() {
	select {
	case w.queued <- struct{}{}:
	default:
	}
}

// A result is a lease, or an error. A try at a pool gets neither: its block is in the pool.
type result struct {
	lease *lease
	err   error
	after time.Duration // of a try: when the store can decide; 0: it has decided
}

// newWaiter returns the waiter of a request. It is part of the call, which waits for one
// request at a time.
func (s *session) newWaiter(c *call, req *protocol.Op) *waiter {
	w := &c.waiter
	*w = waiter{op: req, call: c, ended: make(chan result, 1)}
	if s.monitor != nil {
		w.queued = make(chan struct{}, 1)
	}
	return w
}

// submit adds the request of a waiter to the next batch.
func (s *session) submit(op string, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admitsLocked(op, w.op.Weight); err != nil || w.op.Weight == 0 {
		return err
	}
	w.op.Ticket = s.newTicketLocked()
	s.waiters[w.op.Ticket] = w
	if s.holdLocked(w) {
		return nil
	}
	if s.peer != nil {
		s.peer.Request(*w.op)
	}
	if w.inline = w.inline && s.becomeDriverLocked(); !w.inline {
		s.startDriverLocked()
	}
	return nil
}

func (s *session) newTicketLocked() protocol.Ticket {
	s.lastTicket++
	return s.lastTicket
}

// admitsLocked fails if nothing is granted, as far as is known, or if the local limit
// applies. A drain stays in effect while the store does not reply.
func (s *session) admitsLocked(op string, n int64) error {
	switch {
	case s.closed:
		return s.fault(op, n, sema.ErrClosed, "")
	case s.drainingLocked() && (n == 0 || s.failOpen.applies()):
		return s.fault(op, n, sema.ErrDraining, "")
	case s.failOpen.applies():
		return errFailedOpen
	}
	return nil
}

// drainingLocked reports whether the semaphore is draining, according to the last reply.
func (s *session) drainingLocked() bool { return s.last.Config.Draining }

// await waits for the result of a request. If the caller gives up first, a lease that was
// granted meanwhile is released.
func (s *session) await(ctx context.Context, c *call, w *waiter) (result, error) {
	select {
	case r := <-w.ended: // decided before
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

// conclude returns the result or the error for the caller.
func (s *session) conclude(ctx context.Context, c *call, w *waiter, r result) (result, error) {
	if w.op.Wait > 0 && errors.Is(r.err, sema.ErrTimeout) {
		<-ctx.Done() // the store's clock was ahead; return when the context's deadline has passed
	}
	switch {
	case ctx.Err() != nil:
		if r.lease != nil {
			r.lease.abandon()
		}
		return result{}, context.Cause(ctx)
	case r.err == errFailedOpen:
		return result{}, errFailedOpen
	case r.err != nil:
		fault := s.rejection(c.op, c.weight(), r.err).(*sema.Error)
		if fault.After = r.after; fault.After > 0 && errors.Is(r.err, sema.ErrUnavailable) {
			fault.Detail = "the store has restarted and does not know yet what is held"
		}
		if fault.After == 0 && errors.Is(r.err, sema.ErrFull) {
			fault.After = s.retryAfter(c.weight())
		}
		return result{}, fault
	}
	return r, nil
}

// withdraw cancels the request of a waiter, and releases the lease if it was granted
// meanwhile.
func (s *session) withdraw(w *waiter) {
	s.mu.Lock()
	_, waiting := s.waiters[w.op.Ticket]
	if waiting {
		s.removeLocked(w.op.Ticket)
		if !w.held {
			s.cancelLocked(w.op.Ticket)
		}
	}
	s.mu.Unlock()
	if !waiting {
		if r := <-w.ended; r.lease != nil {
			r.lease.abandon()
		}
	}
}

// removeLocked removes and returns the waiter of a ticket, nil if there is none.
func (s *session) removeLocked(ticket protocol.Ticket) *waiter {
	w := s.waiters[ticket]
	delete(s.waiters, ticket)
	if w != nil && w.call != nil && w.call.waits {
		s.tally.unqueue(w.call)
	}
	return w
}

// cancelLocked cancels a request at the store.
func (s *session) cancelLocked(ticket protocol.Ticket) {
	if s.peer != nil {
		s.requestLocked(protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
	}
}

// requestLocked adds an operation to the next batch. A session must be open.
func (s *session) requestLocked(op protocol.Op) {
	s.peer.Request(op)
	s.startDriverLocked()
}

// releaseLocked adds a release to the next batch. A session must be open.
func (s *session) releaseLocked(op protocol.Op) {
	s.counts.Releases++
	s.requestLocked(op)
}

// notified polls the store after a notification.
func (s *session) notified() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Notifications++
	s.pollLocked()
}

// pollLocked polls the store for results, if a session is open.
func (s *session) pollLocked() {
	if s.peer != nil {
		s.peer.Notify(s.client.clock())
		s.startDriverLocked()
	}
}

// details returns the description of an acquire for listings: its call site and labels.
// Successive acquires of a call site share it.
func (s *session) details() *protocol.Details {
	site, last := callsite.Here(), s.lastDetails.Load()
	if last == nil || last.Site != site {
		last = &protocol.Details{Site: site, Labels: s.labels}
		s.lastDetails.Store(last)
	}
	return last
}

// waitingLocked returns the number of waiters of this process.
func (s *session) waitingLocked() int {
	return len(s.waiters) + s.strategy.usageLocked().waiters + s.failOpen.stats().Waiters - s.uncounted
}

// retryAfter returns the After of a try that found too few permits of a rate; 0: unknown.
func (s *session) retryAfter(n int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.delayLocked(n); d < math.MaxInt64 {
		return d
	}
	return 0
}

// fault returns an error about this semaphore.
func (s *session) fault(op string, n int64, err error, detail string) error {
	return &sema.Error{Op: op, Name: s.settings.label, Weight: n, Capacity: s.capacity.Load(), InUse: max(0, s.inUse.Load()), Err: err, Detail: detail}
}

// rejection returns the error of a caller that was queued or might have been, with the
// number of waiters.
func (s *session) rejection(op string, n int64, err error) error {
	fault := s.fault(op, n, err, "").(*sema.Error)
	s.mu.Lock()
	fault.Waiters = s.waitingLocked()
	s.mu.Unlock()
	return fault
}

// unavailableError returns the error of a call to which the store has not replied, or whose
// last reply was a denial that came before the call.
func (s *session) unavailableError(c *call) error {
	s.mu.Lock()
	cause := s.driver.lastErr
	s.mu.Unlock()
	if isDenial(cause) {
		return s.fault(c.op, c.weight(), cause, "")
	}
	if cause == nil {
		cause = errNoReply
	}
	return s.fault(c.op, c.weight(), sema.ErrUnavailable, fmt.Sprintf("for %v: %v", time.Since(c.start).Round(time.Millisecond), cause))
}

// errNoReply is the reason if no exchange has failed and none got a reply.
var errNoReply = errors.New("the store does not reply")

// timeoutError returns the error of a wait that has reached MaxWait: ErrTimeout, or
// ErrUnavailable if the store has not replied meanwhile.
func (s *session) timeoutError(c *call) error {
	s.mu.Lock()
	unresponsive, window := s.driver.unresponsiveSinceLocked(c.start), s.windowLocked()
	s.mu.Unlock()
	if unresponsive {
		return s.unavailableError(c)
	}
	fault := s.rejection(c.op, c.weight(), sema.ErrTimeout).(*sema.Error)
	fault.Detail = s.settings.maxWait.String()
	if window > 0 && fault.Capacity > 0 { // a rate: nothing is held that could be released
		fault.Advice = "send fewer requests, or raise the rate or MaxWait"
	}
	return fault
}
