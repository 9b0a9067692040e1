package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// pooled is the strategy of [ModePooled]: the store grants blocks to this process. A local
// semaphore grants permits of these blocks to goroutines, at local speed.
//
// The bound is strict: the capacity of the local semaphore never exceeds the weight of the
// blocks, and no permit that is held here is returned to the store.
type pooled struct {
	*session
	published *atomic.Pointer[generation] // the front, if callers may acquire from it without the mutex

	// Guarded by session.mu.
	front        *generation   // serves acquires
	retired      []*generation // only receive released permits
	queue        list.List[*queued]
	queuedWeight int64           // total weight of the queue
	blockRequest protocol.Op     // request for a block, for the first of the queue; Ticket is 0 if there is none
	recalledAt   protocol.Micros // when others began to wait for blocks; 0: none wait
	decayedAt    protocol.Micros // when unused permits were last returned
	acquired     int64           // permits of dropped generations
}

func newPooled(s *session, published *atomic.Pointer[generation]) *pooled {
	p := &pooled{session: s, published: published}
	s.strategy = p
	p.newFrontLocked()
	return p
}

// A queued is a caller in the local queue. Only the first of the queue also waits at the
// local semaphore and at the store, so that the order survives a change of generation.
type queued struct {
	call    *call
	weight  int64
	turn    chan struct{} // closed when it becomes the first
	reject  context.CancelCauseFunc
	until   protocol.Micros // when its context ends; 0: unknown
	details *protocol.Details
	node    list.Node[*queued]
}

// newFrontLocked makes an empty generation the front. The mutex is not needed before the
// semaphore is in use.
func (s *pooled) newFrontLocked() {
	g := &generation{of: s, lost: make(chan struct{}), over: make(chan struct{})}
	// The monitor of s reports its permits.
	g.local = sema.New(0, sema.Name(s.settings.label), sema.ParkOversize, sema.Backed(g), sema.Diagnose(sema.DiagnoseOff))
	s.front = g
	s.publishLocked()
}

// publishLocked lets callers acquire from the front without the mutex, unless a caller waits
// or acquires are observed.
func (s *pooled) publishLocked() {
	if s.monitor != nil || s.closed || s.failOpen.applies() || s.drainingLocked() || s.queue.Len() > 0 {
		s.published.Store(nil)
		return
	}
	s.published.Store(s.front)
}

func (s *pooled) generationsLocked() []*generation {
	return append([]*generation{s.front}, s.retired...)
}

// acquire acquires from the front, or waits.
func (s *pooled) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	n := c.weight()
	s.mu.Lock()
	if err := s.admitsLocked(c.op, n); err != nil || n == 0 {
		s.mu.Unlock()
		return sema.Permit{}, err
	}
	s.loseIfEndedLocked()
	if s.queue.Len() == 0 {
		if p, err := s.front.local.TryAcquire(ctx, n); err == nil {
			s.mu.Unlock()
			return s.issue(c, p, nil)
		}
	}
	busy, doubtful := s.queue.Len() > 0, s.tooLargeLocked(n) || s.maxWaitersLocked() == sema.NoWaiters
	block := s.cushionLocked(n)
	s.mu.Unlock()
	if c.req.Try && busy && !doubtful {
		return sema.Permit{}, s.rejection(c.op, n, sema.ErrFull)
	}
	if c.req.Try || doubtful { // the store decides, since the capacity may have been raised
		p, err := s.tryBlock(ctx, c, block)
		if c.req.Try || err == nil || !errors.Is(err, sema.ErrFull) {
			return s.issue(c, p, err)
		}
	}
	p, err := s.wait(ctx, c)
	return s.issue(c, p, err)
}

// wait waits in the local queue.
func (s *pooled) wait(ctx context.Context, c *call) (sema.Permit, error) {
	wait, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	q := &queued{call: c, weight: c.weight(), turn: make(chan struct{}), reject: reject, details: s.details()}
	if deadline, ok := ctx.Deadline(); ok {
		q.until = s.client.clock() + protocol.Micros(time.Until(deadline).Microseconds())
	}
	s.mu.Lock()
	err := s.queueableLocked(c.op, q.weight)
	s.mu.Unlock()
	if err != nil {
		return sema.Permit{}, err
	}
	c.noteQueued() // before it joins the queue, so that a slow observer delays no other caller
	if err := s.enqueue(c.op, q); err != nil {
		return sema.Permit{}, err
	}
	defer s.dequeue(q)
	defer s.limit(c, func() { reject(errOverdue) })()
	p, ok := s.awaitTurn(wait, q)
	why := context.Cause(wait)
	switch {
	case ok && ctx.Err() == nil:
		return p, nil
	case ok: // a custom context may end before wait does
		p.Release()
		return sema.Permit{}, context.Cause(ctx)
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case why == errFailedOpen:
		return p, errFailedOpen
	case why == errOverdue && s.settings.maxWait > 0 && time.Since(c.start) >= s.settings.maxWait:
		s.dequeue(q) // this caller is no waiter any more
		return p, s.timeoutError(c)
	case why == errOverdue:
		return p, s.unavailableError(c)
	}
	return p, s.rejection(c.op, q.weight, why)
}

// errOverdue ends the wait of a call that may not wait any longer.
var errOverdue = errors.New("overdue")

// limit calls end when a call may not wait any longer, unless stop was called before.
func (s *pooled) limit(c *call, end func()) (stop func()) {
	left, _ := s.overdue(c)
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		if left, err := s.overdue(c); err == nil {
			timer.Reset(left)
			return
		}
		end()
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// awaitTurn waits in the queue, and then as the first of it, until wait ends.
func (s *pooled) awaitTurn(wait context.Context, q *queued) (sema.Permit, bool) {
	select {
	case <-q.turn:
	case <-wait.Done():
		return sema.Permit{}, false
	}
	for {
		g, ticket := s.requestFirst(q)
		select {
		case <-ticket.Ready():
		case <-g.over:
		case <-wait.Done():
		}
		p, err := ticket.Permit() // fails if the ticket is not ready
		if err == nil && wait.Err() == nil && p.Err() == nil {
			return p, true
		}
		if err == nil {
			g.internal.Add(1)
		}
		p.Release()
		ticket.Cancel()
		if wait.Err() != nil {
			return sema.Permit{}, false
		}
	}
}

// requestFirst queues the first caller at the front, and requests a block if too little is
// free. It retires a front that is too small for the caller even if all its permits were
// released. Otherwise two processes could each keep permits that the other one waits for.
func (s *pooled) requestFirst(q *queued) (*generation, *sema.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseIfEndedLocked()
	if s.front.held < q.weight {
		s.retireLocked()
	}
	g := s.front
	ticket := g.local.Request(q.weight)
	select {
	case <-ticket.Ready():
	default:
		s.requestBlockLocked(q)
	}
	return g, ticket
}

// tryBlock tries to acquire a block, and acquires the permits from it.
func (s *pooled) tryBlock(ctx context.Context, c *call, more int64) (sema.Permit, error) {
	req := c.req
	req.Try, req.Pooled, req.Least, req.Weight, req.Details = true, true, req.Weight, req.Weight+more, s.details()
	w := s.newWaiter(c, &req)
	if err := s.submit(c.op, w); err != nil {
		return sema.Permit{}, err
	}
	if _, err := s.await(ctx, c, w); err != nil {
		return sema.Permit{}, err
	}
	s.mu.Lock()
	s.loseIfEndedLocked()
	p, err := s.front.local.TryAcquire(ctx, req.Least)
	s.mu.Unlock()
	if err != nil {
		return sema.Permit{}, s.rejection(c.op, req.Least, sema.ErrFull)
	}
	return p, nil
}

// maxWaitersLocked returns the stored bound of the queue, or the requested one while the
// stored one is unknown.
func (s *pooled) maxWaitersLocked() int64 {
	if s.peer != nil {
		return s.peer.Config().MaxWaiters
	}
	return s.config.MaxWaiters
}

// queueableLocked fails if a caller cannot be queued here.
func (s *pooled) queueableLocked(op string, n int64) error {
	if err := s.admitsLocked(op, n); err != nil {
		return err
	}
	waiting, limit := int64(s.queue.Len()), s.maxWaitersLocked()
	if limit == sema.NoWaiters || limit > 0 && waiting >= limit {
		fault := s.fault(op, n, sema.ErrQueueFull, "").(*sema.Error)
		fault.Waiters = int(waiting)
		return fault
	}
	return nil
}

// enqueue adds a caller to the queue. It fails if nothing is granted any more, or if the
// queue is full.
func (s *pooled) enqueue(op string, q *queued) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.queueableLocked(op, q.weight); err != nil {
		return err
	}
	q.node.Of = q
	s.queue.PushBack(&q.node)
	s.tally.queue(q.call)
	s.queuedWeight += q.weight
	if s.queue.Len() == 1 {
		s.publishLocked()
		close(q.turn)
	}
	return nil
}

// dequeue removes a caller from the queue, and wakes the next one if the caller was first.
func (s *pooled) dequeue(q *queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.node.In() {
		return
	}
	s.tally.unqueue(q.call)
	first := s.queue.First() == &q.node
	s.queue.Remove(&q.node)
	s.queuedWeight -= q.weight
	if !first {
		return
	}
	// The request was for this caller. The weight of a caller that left must not delay a
	// lighter one in the store's queue.
	if next := s.queue.First(); next != nil {
		if s.blockRequest.Least != next.Of.weight {
			s.cancelBlockLocked()
		}
		close(next.Of.turn)
		return
	}
	s.cancelBlockLocked()
	s.publishLocked()
}
