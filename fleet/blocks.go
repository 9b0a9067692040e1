package fleet

import (
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// requestBlockLocked requests a block for the first queued caller. The block has at least
// the caller's weight. It is larger, for the queue and the cushion, if the store has enough
// free permits.
func (s *pooled) requestBlockLocked(first *queued) {
	if s.blockRequest.Ticket != 0 {
		if s.blockRequest.Least == first.weight {
			return
		}
		s.cancelBlockLocked()
	}
	s.blockRequest = protocol.Op{
		Verb: protocol.Acquire, Ticket: s.newTicketLocked(), Pooled: true, Least: first.weight,
		Weight: s.queuedWeight + s.cushionLocked(s.queuedWeight), Details: first.details,
	}
	if first.until != 0 {
		s.blockRequest.Wait = max(1, first.until-s.client.clock())
	}
	if s.peer != nil {
		s.peer.Request(s.blockRequest)
	}
	s.startDriverLocked()
}

// cancelBlockLocked cancels the request for a block.
func (s *pooled) cancelBlockLocked() {
	if s.blockRequest.Ticket != 0 {
		s.cancelLocked(s.blockRequest.Ticket)
		s.blockRequest = protocol.Op{}
	}
}

// cushionLocked returns how many unused permits the pool should have after its use has
// grown by more. The block setting bounds it.
func (s *pooled) cushionLocked(more int64) int64 {
	return min(s.last.Cushion(s.front.local.Stats().InUse+more), s.settings.block)
}

// pendingLocked implements [strategy].
func (s *pooled) pendingLocked() protocol.Op { return s.blockRequest }

// resolveLocked implements [strategy].
func (s *pooled) resolveLocked(w *waiter, f protocol.Result) {
	switch {
	case f.Kind == protocol.Revoked:
		s.revokeBlockLocked(f)
	case w != nil: // a try: it takes its permits from the block
		s.addBlockLocked(f)
		w.ended <- result{}
	case s.blockRequest.Ticket != 0 && f.Ticket == s.blockRequest.Ticket:
		s.resolveBlockLocked(f)
	}
}

// resolveBlockLocked handles the result of the request for a block.
func (s *pooled) resolveBlockLocked(f protocol.Result) {
	s.blockRequest = protocol.Op{}
	first := s.queue.First()
	switch {
	case f.Kind == protocol.Granted:
		s.addBlockLocked(f)
	case f.Kind == protocol.Draining:
		s.rejectQueueLocked(sema.ErrDraining)
	case first == nil:
	case f.Kind == protocol.TimedOut: // the first caller has its own timer
		s.requestBlockLocked(first.Of)
	default:
		first.Of.reject(f.Kind.Err())
	}
}

// rejectQueueLocked rejects all queued callers. Each caller removes itself from the queue.
func (s *pooled) rejectQueueLocked(why error) {
	for q := range s.queue.All {
		q.reject(why)
	}
}

// rejectLocked implements [strategy].
func (s *pooled) rejectLocked(why error) {
	s.rejectQueueLocked(why)
	if s.closed {
		s.retireLocked()
		s.publishLocked()
	}
}

// reconfiguredLocked implements [strategy].
func (s *pooled) reconfiguredLocked() {
	for q := range s.queue.All {
		if s.tooLargeLocked(q.weight) {
			q.reject(sema.ErrTooLarge)
		}
	}
	s.publishLocked()
}

// addBlockLocked adds a block to the front.
func (s *pooled) addBlockLocked(f protocol.Result) {
	g, now := s.front, s.client.clock()
	if g.held == 0 {
		g.peer, g.born = s.peer, now
		s.decayedAt = now
	}
	s.counts.Grants++
	g.blocks = append(g.blocks, block{f.Fence, f.Weight})
	g.held += f.Weight
	g.capacity += f.Weight
	g.local.Resize(g.capacity)
}

// repliedLocked implements [strategy]: it returns permits that others wait for.
func (s *pooled) repliedLocked(r protocol.Reply, _ bool) {
	if !r.Recall {
		s.recalledAt = 0
		s.publishLocked()
		return
	}
	if s.recalledAt == 0 {
		s.recalledAt = s.client.clock()
	}
	if r.Config.Draining {
		s.rejectQueueLocked(sema.ErrDraining)
		s.retireLocked()
	}
	s.publishLocked()
	if s.queue.Len() == 0 {
		// Return half of the free permits, and half of the rest with the next reply: others
		// need some of them, rarely all, and getting permits back costs a request.
		g := s.front
		g.shrinkLocked(g.capacity - (g.local.Stats().Free+1)/2)
	}
}

// retireAtLocked returns when to retire the front, or 0 to keep it. After a recall the
// front is used for one more quantum, so that each block is worth its round trip.
func (s *pooled) retireAtLocked() protocol.Micros {
	if s.recalledAt == 0 || s.front.held == 0 {
		return 0
	}
	return max(s.recalledAt, s.front.born) + s.quantum()
}

// wakePoll is the interval at which the driver reads the clock while a pool has permits.
// Timers stop while the machine sleeps, but the session still expires.
const wakePoll = protocol.Micros(100 * time.Millisecond / time.Microsecond)

// dueLocked implements [strategy].
func (s *pooled) dueLocked(now protocol.Micros) protocol.Micros {
	switch due := s.retireAtLocked(); {
	case s.front.held == 0:
		return 0
	case due != 0:
		return min(due, now+wakePoll)
	}
	return now + wakePoll
}

// tendLocked implements [strategy].
func (s *pooled) tendLocked(now protocol.Micros) {
	if due := s.retireAtLocked(); due != 0 && now >= due {
		s.retireLocked()
	}
	g := s.front
	if s.recalledAt == 0 && now-s.decayedAt >= s.peer.Config().TTL/3 {
		s.decayedAt = now
		if free, keep := g.local.Stats().Free, s.cushionLocked(0); free > 2*keep {
			g.shrinkLocked(g.capacity - (free-keep+1)/2)
		}
	}
	g.settleLocked()
}

// heldLocked implements [strategy].
func (s *pooled) heldLocked() (sum int64) {
	for _, g := range s.generationsLocked() {
		sum += g.local.Stats().InUse
	}
	return sum
}

// usageLocked implements [strategy].
func (s *pooled) usageLocked() usage {
	u := usage{waiters: s.queue.Len(), acquired: s.acquired}
	for _, g := range s.generationsLocked() {
		u.blocks += g.held
		u.ready += g.held - min(g.held, g.local.Stats().InUse)
		u.acquired += g.acquired()
	}
	return u
}

func (s *pooled) quantum() protocol.Micros {
	return protocol.Micros(s.settings.quantum.Microseconds())
}

// retireLocked replaces the front by a new generation. The permits of the old one return
// to the store as they are released.
func (s *pooled) retireLocked() {
	g := s.front
	if g.held == 0 {
		return
	}
	s.nextFrontLocked()
	g.confineLocked()
	if g.held > 0 && s.client.start(func() { s.collect(g) }) {
		s.retired = append(s.retired, g)
		return
	}
	s.acquired += g.acquired()
}

// nextFrontLocked replaces the front by an empty generation.
func (s *pooled) nextFrontLocked() {
	close(s.front.over)
	s.newFrontLocked()
}

// loseLocked implements [strategy].
func (s *pooled) loseLocked(why string) {
	for _, g := range s.generationsLocked() {
		g.loseLocked(why)
		s.acquired += g.acquired()
	}
	s.retired, s.recalledAt = nil, 0
	s.nextFrontLocked()
}

// revokeBlockLocked handles the revocation of a block. It is unknown which permits belong
// to the block, so all permits of its generation are lost. Its other blocks are returned
// to the store.
func (s *pooled) revokeBlockLocked(f protocol.Result) {
	for _, g := range s.generationsLocked() {
		for i, b := range g.blocks {
			if b.fence.Seq == f.Lease {
				g.blocks = slices.Delete(g.blocks, i, i+1)
				g.held -= b.weight
				s.endAfterRevokeLocked(g, f.Note)
				return
			}
		}
	}
}

// defaultQuantum is long enough for a block to be worth its round trip to the store, and
// too short for a person to notice.
const defaultQuantum = 50 * time.Millisecond
