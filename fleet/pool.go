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

// A pool is how a semaphore in Pooled mode lends permits: the engine lends blocks
// to this process, which lends their parts to its goroutines through a local
// semaphore, at the speed of one.
//
// The bound is strict: the local semaphore never has more than the blocks weigh,
// and nothing is given back to the engine that is still out here.
type pool struct {
	front    *generation   // from which acquires are served
	retired  []*generation // from which permits only come back
	line     list.List[*queued]
	wanted   int64           // weights of those in line
	asked    protocol.Op     // at the engine, for the first in line; none if its Ticket is 0
	recalled protocol.Micros // since when others wait for blocks; 0: nobody does
	decayed  protocol.Micros // when unused permits were last given back
	acquired int64           // permits of generations that are gone
}

// A generation is blocks that are used and given up together.
type generation struct {
	sem   *Semaphore
	local *sema.Semaphore // of which the permits are
	lost  chan struct{}
	over  chan struct{} // closed when it is the front no more

	internal atomic.Int64 // permits of local that no caller was given

	// Guarded by Semaphore.mu.
	peer     *protocol.Peer // the session that has the blocks
	born     protocol.Micros
	blocks   []block // the oldest first
	held     int64   // what they weigh
	capacity int64   // what may be lent; less than held while it is given back
	why      string  // it was lost
}

// A block is a lease of many permits at the engine.
type block struct {
	fence  protocol.Fence
	weight int64
}

// A queued is somebody who waits here. Only the first in line stands at the
// local semaphore and at the engine, so that the order is kept whatever becomes
// of generations.
type queued struct {
	call    *call
	weight  int64
	turn    chan struct{} // closed when it is the first
	refuse  context.CancelCauseFunc
	until   protocol.Micros // when its context ends; 0: nobody knows
	details protocol.Details
	node    list.Node[*queued]
}

// newFront begins a generation, without anything to lend. The mutex is held,
// or nobody knows the semaphore yet.
func (s *Semaphore) newFront() {
	g := &generation{sem: s, lost: make(chan struct{}), over: make(chan struct{})}
	// Its permits are reported by the monitor of s.
	g.local = sema.New(0, sema.Name(s.settings.label), sema.ParkOversize, sema.Backed(g), sema.Diagnose(sema.DiagnoseOff))
	s.pool.front = g
	s.publish()
}

// publish lets those who need not wait through without a look at anything else,
// unless somebody waits, or wants to look. The mutex is held.
func (s *Semaphore) publish() {
	if s.monitor != nil || s.closed || s.fallback.rules() || s.draining() || s.pool.line.Len() > 0 {
		s.front.Store(nil)
		return
	}
	s.front.Store(s.pool.front)
}

func (p *pool) generations() []*generation {
	if p.front == nil {
		return nil
	}
	return append([]*generation{p.front}, p.retired...)
}

// acquirePooled takes permits from the front, or waits for them.
func (s *Semaphore) acquirePooled(ctx context.Context, c *call) (sema.Permit, error) {
	n := c.weight()
	s.mu.Lock()
	if err := s.admitsLocked(c.op, n); err != nil || n == 0 {
		s.mu.Unlock()
		return sema.Permit{}, err
	}
	s.loseIfEnded()
	if s.pool.line.Len() == 0 {
		if p, err := s.pool.front.local.TryAcquire(ctx, n); err == nil {
			s.mu.Unlock()
			return s.issue(c, p, nil)
		}
	}
	busy, doubtful := s.pool.line.Len() > 0, s.tooLarge(n) || s.maxWaitersLocked() == sema.NoWaiters
	block := s.cushion(n)
	s.mu.Unlock()
	if c.req.Try && busy && !doubtful {
		return sema.Permit{}, s.rejection(c.op, n, sema.ErrFull)
	}
	if c.req.Try || doubtful { // only the store knows: the capacity may have been raised
		p, err := s.tryPooled(ctx, c, block)
		if c.req.Try || err == nil || !errors.Is(err, sema.ErrFull) {
			return s.issue(c, p, err)
		}
	}
	p, err := s.waitPooled(ctx, c)
	return s.issue(c, p, err)
}

// issue returns the permit that a caller gets for one of a local semaphore: the same,
// or one that is observed.
func (s *Semaphore) issue(c *call, p sema.Permit, err error) (sema.Permit, error) {
	if err != nil || s.monitor == nil || p.Weight() == 0 {
		return p, err
	}
	return c.wait.Leased(&localLease{s, p}), nil
}

// waitPooled queues the caller here.
func (s *Semaphore) waitPooled(ctx context.Context, c *call) (sema.Permit, error) {
	wait, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	q := &queued{call: c, weight: c.weight(), turn: make(chan struct{}), refuse: reject, details: s.details()}
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
	case ok:
		return p, nil
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
func (s *Semaphore) limit(c *call, end func()) (stop func()) {
	left, _ := s.overdue(c)
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		if left, err := s.overdue(c); err == nil {
			timer.Reset(left)
			return
		}
		end()
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
	}
}

// awaitTurn waits in line, and then as the first of it, until wait ends.
func (s *Semaphore) awaitTurn(wait context.Context, q *queued) (sema.Permit, bool) {
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

// standFirst stands at the front, and at the engine if there is nothing to be
// had. A front that is too small for it, even if all came back, is retired:
// nobody holds what others wait for while it waits for more.
func (s *Semaphore) standFirst(q *queued) (*generation, *sema.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseIfEnded()
	if s.pool.front.held < q.weight {
		s.retire()
	}
	g := s.pool.front
	ticket := g.local.Request(q.weight)
	select {
	case <-ticket.Ready():
	default:
		s.askBlock(q)
	}
	return g, ticket
}

// tryPooled asks the engine for a block, and takes the permits from it.
func (s *Semaphore) tryPooled(ctx context.Context, c *call, more int64) (sema.Permit, error) {
	wish := c.req
	wish.Try, wish.Pooled, wish.Least, wish.Weight, wish.Details = true, true, wish.Weight, wish.Weight+more, s.details()
	w := s.newWaiter(c, wish)
	if err := s.ask(c.op, w); err != nil {
		return sema.Permit{}, err
	}
	if _, err := s.await(ctx, c, w); err != nil {
		return sema.Permit{}, err
	}
	s.mu.Lock()
	s.loseIfEnded()
	p, err := s.pool.front.local.TryAcquire(ctx, wish.Least)
	s.mu.Unlock()
	if err != nil {
		return sema.Permit{}, s.rejection(c.op, wish.Least, sema.ErrFull)
	}
	return p, nil
}

// loseIfEnded notices the end of the session before the driver does. The mutex
// is held.
func (s *Semaphore) loseIfEnded() {
	if s.peer != nil && s.peer.Ended(s.client.clock()) {
		s.lose(unrenewed)
	}
}

// maxWaitersLocked returns the stored bound of waiters, or the one that was asked for
// while that is unknown.
func (s *Semaphore) maxWaitersLocked() int64 {
	if s.peer != nil {
		return s.peer.Config().MaxWaiters
	}
	return s.config.MaxWaiters
}

// queueableLocked fails if a caller cannot be queued here.
func (s *Semaphore) queueableLocked(op string, n int64) error {
	if err := s.admitsLocked(op, n); err != nil {
		return err
	}
	waiting, limit := int64(s.pool.line.Len()), s.maxWaitersLocked()
	if limit == sema.NoWaiters || limit > 0 && waiting >= limit {
		fault := s.fault(op, n, sema.ErrQueueFull, "").(*sema.Error)
		fault.Waiters = int(waiting)
		return fault
	}
	return nil
}

// stand queues a caller, unless nothing is granted any more, or the queue is full.
func (s *Semaphore) stand(op string, q *queued) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.queueableLocked(op, q.weight); err != nil {
		return err
	}
	q.node.Of = q
	s.pool.line.PushBack(&q.node)
	s.tally.queue(q.call)
	s.pool.wanted += q.weight
	if s.pool.line.Len() == 1 {
		s.publish()
		close(q.turn)
	}
	return nil
}

// leave takes somebody out of line. It is the next one's turn.
func (s *Semaphore) leave(q *queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.node.In() {
		return
	}
	s.tally.unqueue(q.call)
	first := s.pool.line.First() == &q.node
	s.pool.line.Remove(&q.node)
	s.pool.wanted -= q.weight
	if !first {
		return
	}
	// What it asked for was for it: a heavy one that left must not go on standing
	// at the engine for a light one.
	if next := s.pool.line.First(); next != nil {
		if s.pool.asked.Least != next.Of.weight {
			s.unaskBlock()
		}
		close(next.Of.turn)
		return
	}
	s.unaskBlock()
	s.publish()
}
