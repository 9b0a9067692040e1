package fleet

import (
	"context"
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
}

// A generation is blocks that are used and given up together.
type generation struct {
	sem   *Semaphore
	local *sema.Semaphore // of which the permits are
	lost  chan struct{}
	over  chan struct{} // closed when it is the front no more

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
	weight int64
	turn   chan struct{} // closed when it is the first
	refuse context.CancelCauseFunc
	until  protocol.Micros // when its context ends; 0: nobody knows
	meta   string
	node   list.Node[*queued]
}

// newFront begins a generation, without anything to lend. The mutex is held,
// or nobody knows the semaphore yet.
func (s *Semaphore) newFront() {
	g := &generation{sem: s, lost: make(chan struct{}), over: make(chan struct{})}
	g.local = sema.New(0, sema.Name(s.name), sema.ParkOversize, sema.Backed(g))
	s.pool.front = g
	s.publish()
}

// publish lets those who need not wait through without a look at anything else,
// unless somebody wants to look. The mutex is held.
func (s *Semaphore) publish() {
	if s.options.Observer != nil || s.closed || s.fallback.rules() || s.draining() {
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
func (s *Semaphore) acquirePooled(ctx context.Context, op string, wish protocol.Op, start time.Time) (sema.Permit, error) {
	s.mu.Lock()
	if err := s.open(op, wish.Weight); err != nil || wish.Weight == 0 {
		s.mu.Unlock()
		return sema.Permit{}, err
	}
	if s.pool.line.Len() == 0 {
		if p, err := s.pool.front.local.TryAcquire(ctx, wish.Weight); err == nil {
			s.mu.Unlock()
			return p, nil
		}
	}
	if wish.Try {
		busy := s.pool.line.Len() > 0
		wish.Pooled, wish.Least, wish.Weight = true, wish.Weight, wish.Weight+s.cushion(wish.Weight)
		s.mu.Unlock()
		if busy {
			return sema.Permit{}, s.refusal(op, wish.Least, sema.ErrFull)
		}
		return s.tryPooled(ctx, op, wish, start)
	}
	wait, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	q := &queued{weight: wish.Weight, turn: make(chan struct{}), refuse: refuse, meta: s.meta()}
	if deadline, ok := ctx.Deadline(); ok {
		q.until = s.client.clock() + protocol.Micros(time.Until(deadline).Microseconds())
	}
	full := !s.stand(q)
	s.mu.Unlock()
	if full {
		return sema.Permit{}, s.refusal(op, wish.Weight, sema.ErrQueueFull)
	}
	defer s.leave(q)
	s.tellQueued(q.weight, func() {}) // should the observer panic, it leaves all the same
	defer time.AfterFunc(time.Until(start.Add(s.options.MaxWait)), func() { refuse(sema.ErrTimeout) }).Stop()
	p, ok := s.awaitTurn(wait, q)
	why := context.Cause(wait)
	switch {
	case ok:
		return p, nil
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case why == errAside:
		return p, errAside
	case why == sema.ErrTimeout:
		return p, s.timeout(op, q.weight, start)
	}
	return p, s.refusal(op, q.weight, why)
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
	if s.peer != nil && s.peer.Ended(s.client.clock()) {
		s.lose(unrenewed)
	}
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
func (s *Semaphore) tryPooled(ctx context.Context, op string, wish protocol.Op, start time.Time) (sema.Permit, error) {
	wish.Meta = s.meta()
	w := &waiter{op: wish, ended: make(chan outcome, 1)}
	if err := s.ask(op, w); err != nil {
		return sema.Permit{}, err
	}
	if _, err := s.await(ctx, op, w, start); err != nil {
		return sema.Permit{}, err
	}
	p, err := s.currentFront().local.TryAcquire(ctx, wish.Least)
	if err != nil {
		return sema.Permit{}, s.refusal(op, wish.Least, sema.ErrFull)
	}
	return p, nil
}

func (s *Semaphore) currentFront() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool.front
}

// stand puts somebody in line, unless that is full. The mutex is held.
func (s *Semaphore) stand(q *queued) bool {
	limit := s.config.MaxWaiters
	if s.peer != nil {
		limit = s.peer.Config().MaxWaiters
	}
	if limit > 0 && int64(s.pool.line.Len()) >= limit {
		return false
	}
	q.node.Of = q
	s.pool.line.PushBack(&q.node)
	s.pool.wanted += q.weight
	if s.pool.line.Len() == 1 {
		close(q.turn)
	}
	return true
}

// leave takes somebody out of line. It is the next one's turn.
func (s *Semaphore) leave(q *queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.node.In() {
		return
	}
	first := s.pool.line.First() == &q.node
	s.pool.line.Remove(&q.node)
	s.pool.wanted -= q.weight
	next := s.pool.line.First()
	switch {
	case next != nil && first:
		close(next.Of.turn)
	case next == nil && s.pool.asked.Ticket != 0:
		s.unask(s.pool.asked.Ticket)
		s.pool.asked = protocol.Op{}
	}
}
