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

// pooled is the strategy of [ModePooled]: the store lends blocks to this process, which
// lends their parts to its goroutines through a local semaphore, at the speed of one.
//
// The bound is strict: the local semaphore never has more than the blocks weigh, and
// nothing is returned to the store that is still held here.
type pooled struct {
	*session
	published *atomic.Pointer[generation] // the front, for callers that need not wait

	// Guarded by session.mu.
	front    *generation   // from which acquires are served
	retired  []*generation // to which permits only return
	queue    list.List[*queued]
	wanted   int64           // weights of the queue
	asked    protocol.Op     // request for a block, for the first of the queue; its Ticket is 0 if there is none
	recalled protocol.Micros // since when others wait for blocks; 0: they do not
	decayed  protocol.Micros // when unused permits were last returned
	acquired int64           // permits of generations that are gone
}

func newPooled(s *session, published *atomic.Pointer[generation]) *pooled {
	p := &pooled{session: s, published: published}
	s.strategy = p
	p.newFront()
	return p
}

// A queued is a caller that waits here. Only the first of the queue waits at the local
// semaphore and at the store, so that the order is kept whatever happens to
// generations.
type queued struct {
	call    *call
	weight  int64
	turn    chan struct{} // closed when it is the first
	reject  context.CancelCauseFunc
	until   protocol.Micros // when its context ends; 0: unknown
	details protocol.Details
	node    list.Node[*queued]
}

// newFront starts a generation, without anything to lend. The mutex is held, or the
// semaphore is not in use yet.
func (s *pooled) newFront() {
	g := &generation{of: s, lost: make(chan struct{}), over: make(chan struct{})}
	// Its permits are reported by the monitor of s.
	g.local = sema.New(0, sema.Name(s.settings.label), sema.ParkOversize, sema.Backed(g), sema.Diagnose(sema.DiagnoseOff))
	s.front = g
	s.publish()
}

// publish makes the front available to callers that need not wait, without a lock, unless
// a caller waits or acquires are observed. The mutex is held.
func (s *pooled) publish() {
	if s.monitor != nil || s.closed || s.failOpen.applies() || s.draining() || s.queue.Len() > 0 {
		s.published.Store(nil)
		return
	}
	s.published.Store(s.front)
}

func (s *pooled) generations() []*generation { return append([]*generation{s.front}, s.retired...) }

// acquire takes permits from the front, or waits for them.
func (s *pooled) acquire(ctx context.Context, c *call) (sema.Permit, error) {
	n := c.weight()
	s.mu.Lock()
	if err := s.admitsLocked(c.op, n); err != nil || n == 0 {
		s.mu.Unlock()
		return sema.Permit{}, err
	}
	s.loseIfEnded()
	if s.queue.Len() == 0 {
		if p, err := s.front.local.TryAcquire(ctx, n); err == nil {
			s.mu.Unlock()
			return s.issue(c, p, nil)
		}
	}
	busy, doubtful := s.queue.Len() > 0, s.tooLarge(n) || s.maxWaitersLocked() == sema.NoWaiters
	block := s.cushion(n)
	s.mu.Unlock()
	if c.req.Try && busy && !doubtful {
		return sema.Permit{}, s.rejection(c.op, n, sema.ErrFull)
	}
	if c.req.Try || doubtful { // only the store knows: the capacity may have been raised
		p, err := s.tryBlock(ctx, c, block)
		if c.req.Try || err == nil || !errors.Is(err, sema.ErrFull) {
			return s.issue(c, p, err)
		}
	}
	p, err := s.wait(ctx, c)
	return s.issue(c, p, err)
}

// wait queues the caller here.
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
	c.noteQueued() // before it joins the queue: an observer that is slow delays no other caller
	if err := s.stand(c.op, q); err != nil {
		return sema.Permit{}, err
	}
	defer s.leave(q)
	defer s.limit(c, func() { reject(errOverdue) })()
	p, ok := s.awaitTurn(wait, q)
	why := context.Cause(wait)
	switch {
	case ok && ctx.Err() == nil:
		return p, nil
	case ok: // a context of another kind ends wait a moment later
		p.Release()
		return sema.Permit{}, context.Cause(ctx)
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case why == errFailedOpen:
		return p, errFailedOpen
	case why == errOverdue && s.settings.maxWait > 0 && time.Since(c.start) >= s.settings.maxWait:
		return p, s.timeout(c)
	case why == errOverdue:
		return p, s.silence(c)
	}
	return p, s.rejection(c.op, q.weight, why)
}

// errOverdue ends the wait of a call that waits no longer.
var errOverdue = errors.New("overdue")

// limit calls end when a call waits no longer, unless stop is called before.
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
		g, ticket := s.standFirst(q)
		select {
		case <-ticket.Ready():
		case <-g.over:
		case <-wait.Done():
		}
		p, err := ticket.Permit() // which fails if it is not ready
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

// standFirst queues the first caller at the front, and at the store if too little is
// free. A front that is too small for it, even if all were released, is retired: no
// process keeps what others wait for while it waits for more.
func (s *pooled) standFirst(q *queued) (*generation, *sema.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseIfEnded()
	if s.front.held < q.weight {
		s.retire()
	}
	g := s.front
	ticket := g.local.Request(q.weight)
	select {
	case <-ticket.Ready():
	default:
		s.askBlock(q)
	}
	return g, ticket
}

// tryBlock asks the store for a block, and takes the permits from it.
func (s *pooled) tryBlock(ctx context.Context, c *call, more int64) (sema.Permit, error) {
	req := c.req
	req.Try, req.Pooled, req.Least, req.Weight, req.Details = true, true, req.Weight, req.Weight+more, s.details()
	w := s.newWaiter(c, req)
	if err := s.ask(c.op, w); err != nil {
		return sema.Permit{}, err
	}
	if _, err := s.await(ctx, c, w); err != nil {
		return sema.Permit{}, err
	}
	s.mu.Lock()
	s.loseIfEnded()
	p, err := s.front.local.TryAcquire(ctx, req.Least)
	s.mu.Unlock()
	if err != nil {
		return sema.Permit{}, s.rejection(c.op, req.Least, sema.ErrFull)
	}
	return p, nil
}

// maxWaitersLocked returns the stored bound of waiters, or the one that was asked for
// while that is unknown.
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

// stand queues a caller, unless nothing is granted any more, or the queue is full.
func (s *pooled) stand(op string, q *queued) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.queueableLocked(op, q.weight); err != nil {
		return err
	}
	q.node.Of = q
	s.queue.PushBack(&q.node)
	s.tally.queue(q.call)
	s.wanted += q.weight
	if s.queue.Len() == 1 {
		s.publish()
		close(q.turn)
	}
	return nil
}

// leave removes a caller from the queue. It is the next one's turn.
func (s *pooled) leave(q *queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.node.In() {
		return
	}
	s.tally.unqueue(q.call)
	first := s.queue.First() == &q.node
	s.queue.Remove(&q.node)
	s.wanted -= q.weight
	if !first {
		return
	}
	// The request was for this caller: a heavy one that left must not stay in the
	// store's queue for a light one.
	if next := s.queue.First(); next != nil {
		if s.asked.Least != next.Of.weight {
			s.cancelBlock()
		}
		close(next.Of.turn)
		return
	}
	s.cancelBlock()
	s.publish()
}
