package fleet

import (
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// askBlock asks the store for what the first of the queue wants, in one piece, and for
// more if that is to spare. The mutex is held.
func (s *pooled) askBlock(first *queued) {
	if s.asked.Ticket != 0 {
		if s.asked.Least == first.weight {
			return
		}
		s.cancelBlock()
	}
	s.asked = protocol.Op{
		Verb: protocol.Acquire, Ticket: s.newTicketLocked(), Pooled: true, Least: first.weight,
		Weight: s.wanted + s.cushion(s.wanted), Details: first.details,
	}
	if first.until != 0 {
		s.asked.Wait = max(1, first.until-s.client.clock())
	}
	if s.peer != nil {
		s.peer.Wish(s.asked)
	}
	s.drive()
}

// cancelBlock cancels the request for a block. The mutex is held.
func (s *pooled) cancelBlock() {
	if s.asked.Ticket != 0 {
		s.cancel(s.asked.Ticket)
		s.asked = protocol.Op{}
	}
}

// cushion returns how much the pool should have ready when so much more is in use than
// now. The mutex is held.
func (s *pooled) cushion(more int64) int64 {
	return min(s.last.Cushion(s.front.local.Stats().InUse+more), s.settings.block)
}

// pending implements [strategy].
func (s *pooled) pending() protocol.Op { return s.asked }

// resolve implements [strategy].
func (s *pooled) resolve(w *waiter, f protocol.Result) {
	switch {
	case f.Kind == protocol.Revoked:
		s.revokeBlock(f)
	case w != nil: // of a try, which takes its permits from the block
		s.addBlock(f)
		w.ended <- result{}
	case s.asked.Ticket != 0 && f.Ticket == s.asked.Ticket:
		s.resolveBlock(f)
	}
}

// resolveBlock handles the result of the request for a block. The mutex is held.
func (s *pooled) resolveBlock(f protocol.Result) {
	s.asked = protocol.Op{}
	first := s.queue.First()
	switch {
	case f.Kind == protocol.Granted:
		s.addBlock(f)
	case f.Kind == protocol.Draining:
		s.rejectQueue(sema.ErrDraining)
	case first == nil:
	case f.Kind == protocol.TimedOut: // it has its own timer
		s.askBlock(first.Of)
	default:
		first.Of.reject(f.Kind.Err())
	}
}

// rejectQueue rejects all queued callers. They leave the queue by themselves. The mutex
// is held.
func (s *pooled) rejectQueue(why error) {
	for q := range s.queue.All {
		q.reject(why)
	}
}

// reject implements [strategy].
func (s *pooled) reject(why error) {
	s.rejectQueue(why)
	if s.closed {
		s.retire()
		s.publish()
	}
}

// reconfigured implements [strategy].
func (s *pooled) reconfigured() {
	for q := range s.queue.All {
		if s.tooLarge(q.weight) {
			q.reject(sema.ErrTooLarge)
		}
	}
	s.publish()
}

// addBlock adds a block to what is lent here. The mutex is held.
func (s *pooled) addBlock(f protocol.Result) {
	g, now := s.front, s.client.clock()
	if g.held == 0 {
		g.peer, g.born = s.peer, now
		s.decayed = now
	}
	s.counts.Grants++
	g.blocks = append(g.blocks, block{f.Fence, f.Weight})
	g.held += f.Weight
	g.capacity += f.Weight
	g.local.Resize(g.capacity)
}

// replied implements [strategy]: it returns permits that others wait for.
func (s *pooled) replied(r protocol.Reply, _ bool) {
	if !r.Recall {
		s.recalled = 0
		s.publish()
		return
	}
	if s.recalled == 0 {
		s.recalled = s.client.clock()
	}
	if r.Config.Draining {
		s.rejectQueue(sema.ErrDraining)
		s.retire()
	}
	s.publish()
	if s.queue.Len() == 0 {
		// Half of what is free, and again with the reply to that: others need some of it,
		// hardly all, and whoever wants it back has to ask.
		g := s.front
		g.shrink(g.capacity - (g.local.Stats().Free+1)/2)
	}
}

// retireDue returns when the front is to be retired, 0 if it is not: it is used for one
// quantum more when others wait, so that each block is worth its round trip. The mutex
// is held.
func (s *pooled) retireDue() protocol.Micros {
	if s.recalled == 0 || s.front.held == 0 {
		return 0
	}
	return max(s.recalled, s.front.born) + s.quantum()
}

// wakePoll is how often the driver reads the clock while a pool lends. Its timers stand
// still while the machine sleeps, its session does not.
const wakePoll = protocol.Micros(100 * time.Millisecond / time.Microsecond)

// due implements [strategy].
func (s *pooled) due(now protocol.Micros) protocol.Micros {
	switch due := s.retireDue(); {
	case s.front.held == 0:
		return 0
	case due != 0:
		return min(due, now+wakePoll)
	}
	return now + wakePoll
}

// tend implements [strategy].
func (s *pooled) tend(now protocol.Micros) {
	if due := s.retireDue(); due != 0 && now >= due {
		s.retire()
	}
	g := s.front
	if s.recalled == 0 && now-s.decayed >= s.peer.Config().TTL/3 {
		s.decayed = now
		if free, keep := g.local.Stats().Free, s.cushion(0); free > 2*keep {
			g.shrink(g.capacity - (free-keep+1)/2)
		}
	}
	g.settle()
}

// held implements [strategy].
func (s *pooled) held() (sum int64) {
	for _, g := range s.generations() {
		sum += g.local.Stats().InUse
	}
	return sum
}

// usage implements [strategy].
func (s *pooled) usage() usage {
	u := usage{waiters: s.queue.Len(), acquired: s.acquired}
	for _, g := range s.generations() {
		u.blocks += g.held
		u.ready += g.held - min(g.held, g.local.Stats().InUse)
		u.acquired += g.acquired()
	}
	return u
}

func (s *pooled) quantum() protocol.Micros {
	return protocol.Micros(s.settings.quantum.Microseconds())
}

// retire starts another generation. The permits of the present one return to the store
// as they are released. The mutex is held.
func (s *pooled) retire() {
	g := s.front
	if g.held == 0 {
		return
	}
	s.nextFront()
	g.confine()
	if g.held > 0 && s.client.start(func() { s.collect(g) }) {
		s.retired = append(s.retired, g)
		return
	}
	s.acquired += g.acquired()
}

// nextFront starts another generation. The mutex is held.
func (s *pooled) nextFront() {
	close(s.front.over)
	s.newFront()
}

// lose implements [strategy].
func (s *pooled) lose(why string) {
	for _, g := range s.generations() {
		g.lose(why)
		s.acquired += g.acquired()
	}
	s.retired, s.recalled = nil, 0
	s.nextFront()
}

// revokeBlock handles the end of a block. It is unknown which permits were of it, so all
// of its generation are lost; the other blocks return to the store with them. The mutex
// is held.
func (s *pooled) revokeBlock(f protocol.Result) {
	for _, g := range s.generations() {
		for i, b := range g.blocks {
			if b.fence.Seq == f.Lease {
				g.blocks = slices.Delete(g.blocks, i, i+1)
				g.held -= b.weight
				s.without(g, f.Note)
				return
			}
		}
	}
}

// defaultQuantum is long enough for a block to be worth its round trip to the store, and
// short for people.
const defaultQuantum = 50 * time.Millisecond
