package fleet

import (
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// askBlock asks the engine for what the first in line wants, in one piece, and
// for more if nobody minds. The mutex is held.
func (s *Semaphore) askBlock(first *queued) {
	p := &s.pool
	if p.asked.Ticket != 0 {
		if p.asked.Least == first.weight {
			return
		}
		s.unaskBlock()
	}
	s.lastTicket++
	p.asked = protocol.Op{
		Verb: protocol.Acquire, Ticket: s.lastTicket, Pooled: true, Least: first.weight,
		Weight: p.wanted + s.cushion(p.wanted), Details: first.details,
	}
	if first.until != 0 {
		p.asked.Wait = max(1, first.until-s.client.clock())
	}
	if s.peer != nil {
		s.peer.Wish(p.asked)
	}
	s.drive()
}

// unaskBlock takes back what was asked. The mutex is held.
func (s *Semaphore) unaskBlock() {
	if s.pool.asked.Ticket != 0 {
		s.unask(s.pool.asked.Ticket)
		s.pool.asked = protocol.Op{}
	}
}

// cushion is how much the pool would like to have ready when so much more is in
// use than now. The mutex is held.
func (s *Semaphore) cushion(more int64) int64 {
	return min(s.last.Cushion(s.pool.front.local.Stats().InUse+more), s.settings.block)
}

// poolResult is of what the first in line asked for. The mutex is held.
func (s *Semaphore) poolResult(f protocol.Result) {
	s.pool.asked = protocol.Op{}
	first := s.pool.line.First()
	switch {
	case f.Kind == protocol.Granted:
		s.addBlock(f)
	case f.Kind == protocol.Draining:
		s.refuseLine(sema.ErrDraining)
	case first == nil:
	case f.Kind == protocol.TimedOut: // it has its own timer
		s.askBlock(first.Of)
	default:
		first.Of.refuse(f.Kind.Err())
	}
}

// refuseLine refuses all in line. They leave by themselves. The mutex is held.
func (s *Semaphore) refuseLine(why error) {
	for q := range s.pool.line.All {
		q.refuse(why)
	}
}

// addBlock has a block lent out here. The mutex is held.
func (s *Semaphore) addBlock(f protocol.Result) {
	g, now := s.pool.front, s.client.clock()
	if g.held == 0 {
		g.peer, g.born = s.peer, now
		s.pool.decayed = now
	}
	s.counts.Grants++
	g.blocks = append(g.blocks, block{f.Fence, f.Weight})
	g.held += f.Weight
	g.capacity += f.Weight
	g.local.Resize(g.capacity)
}

// heed does what a reply asks of a pool. The mutex is held.
func (s *Semaphore) heed(r protocol.Reply) {
	p := &s.pool
	switch {
	case p.front == nil:
		return
	case !r.Recall:
		p.recalled = 0
		s.publish()
		return
	case p.recalled == 0:
		p.recalled = s.client.clock()
	}
	if r.Config.Draining {
		s.refuseLine(sema.ErrDraining)
		s.retire()
	}
	s.publish()
	if s.pool.line.Len() == 0 {
		// Half of what is free, and again with the answer to that: others need
		// some of it, hardly all, and who wants it back has to ask.
		g := s.pool.front
		g.shrink(g.capacity - (g.local.Stats().Free+1)/2)
	}
}

// due is when the front is to be retired, if it is: what it has is lent out for
// one quantum more when others wait, so that each block is worth its way.
func (p *pool) due(quantum protocol.Micros) (at protocol.Micros, any bool) {
	if p.recalled == 0 || p.front.held == 0 {
		return 0, false
	}
	return max(p.recalled, p.front.born) + quantum, true
}

// tendPool does what is due by time. The mutex is held.
func (s *Semaphore) tendPool(now protocol.Micros) {
	if s.pool.front == nil || s.peer == nil {
		return
	}
	if due, any := s.pool.due(s.quantum()); any && now >= due {
		s.retire()
	}
	g := s.pool.front
	if s.pool.recalled == 0 && now-s.pool.decayed >= s.peer.Config().TTL/3 {
		s.pool.decayed = now
		if free, keep := g.local.Stats().Free, s.cushion(0); free > 2*keep {
			g.shrink(g.capacity - (free-keep+1)/2)
		}
	}
	g.settle()
}

func (s *Semaphore) quantum() protocol.Micros {
	return protocol.Micros(s.settings.quantum.Microseconds())
}

// retire begins another generation. The permits of the present one are given
// back as they come. The mutex is held.
func (s *Semaphore) retire() {
	g := s.pool.front
	if g.held == 0 {
		return
	}
	s.nextFront()
	g.confine()
	if g.held > 0 && s.client.start(func() { s.collect(g) }) {
		s.pool.retired = append(s.pool.retired, g)
		return
	}
	s.pool.acquired += g.acquired()
}

// nextFront begins another generation. The mutex is held.
func (s *Semaphore) nextFront() {
	close(s.pool.front.over)
	s.newFront()
}

// confine has nothing lent any more but what is out. Somebody may have taken
// something between the look and the change; that is out, too. The mutex is held.
func (g *generation) confine() {
	g.shrink(g.local.Stats().InUse)
	if debt := g.local.Stats().Debt; debt > 0 && g.capacity+debt <= g.held {
		g.capacity += debt
		g.local.Resize(g.capacity)
	}
}

// collect waits for the permits of a retired generation.
func (s *Semaphore) collect(g *generation) {
	for {
		p, err := g.local.Acquire(s.client.life, 1)
		if err != nil {
			return // lost, or the client is at its end
		}
		g.internal.Add(1)
		p.Release()
		if s.collected(g) {
			return
		}
	}
}

// collected gives back what has come back, and reports whether that was all.
func (s *Semaphore) collected(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.peer != s.peer {
		return true
	}
	g.confine()
	if g.held > 0 {
		return false
	}
	s.pool.drop(g)
	return true
}

// drop forgets a generation that is over, but for its count.
func (p *pool) drop(g *generation) {
	p.acquired += g.acquired()
	p.retired = slices.DeleteFunc(p.retired, func(other *generation) bool { return other == g })
}

// shrink lowers what may be lent out. The mutex is held.
func (g *generation) shrink(capacity int64) {
	if capacity < g.capacity {
		g.capacity = capacity
		g.local.Resize(capacity)
	}
	g.settle()
}

// settle gives the engine back what is neither to be lent nor out: the youngest
// blocks first, so that the fence of the oldest is good for all that is out. The
// mutex is held.
func (g *generation) settle() {
	for back := g.held - max(g.capacity, g.local.Stats().InUse); back > 0; {
		last := &g.blocks[len(g.blocks)-1]
		n := min(back, last.weight)
		wish := protocol.Op{Verb: protocol.Release, Lease: last.fence.Seq, Weight: n}
		last.weight -= n
		if last.weight == 0 {
			wish.Weight = 0
			g.blocks = g.blocks[:len(g.blocks)-1]
		}
		g.held -= n
		back -= n
		g.sem.release(wish)
	}
}

// losePool ends all generations with the session. The mutex is held.
func (s *Semaphore) losePool(why string) {
	if s.pool.front == nil {
		return
	}
	for _, g := range s.pool.generations() {
		g.lose(why)
		s.pool.acquired += g.acquired()
	}
	s.pool.retired, s.pool.recalled = nil, 0
	s.nextFront()
}

// lose ends a generation, with the permits of it that are out. Who waits for
// those that come back does so no more. The mutex is held.
func (g *generation) lose(why string) {
	g.disown(why)
	g.local.Close()
}

// disown tells holders that their permits are lost. The mutex is held.
func (g *generation) disown(why string) {
	if g.why != "" {
		return
	}
	g.why = why
	close(g.lost)
	if out := g.local.Stats().InUse; out > 0 {
		g.sem.tellLater(sema.Event{Kind: sema.EventLost, Weight: out, Err: g.sem.fault("hold", out, sema.ErrLost, why)})
	}
}

// revokeBlock is when a block was taken away. Nobody can say which permits were
// of it, so all of its generation are lost; the other blocks are given back with
// them. The mutex is held.
func (s *Semaphore) revokeBlock(f protocol.Result) {
	for _, g := range s.pool.generations() {
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

// without is a generation that has lost a block. It is the front no more, and
// ends when it has nothing left to give back. The mutex is held.
func (s *Semaphore) without(g *generation, why string) {
	g.disown(why)
	g.shrink(min(g.capacity, g.held))
	switch {
	case g.held == 0:
		if g == s.pool.front {
			s.nextFront()
		}
		g.local.Close()
		s.pool.drop(g)
	case g == s.pool.front:
		s.retire()
	}
}

// Lost is for [sema.Permit.Lost].
func (g *generation) Lost() <-chan struct{} { return g.lost }

// Err is for [sema.Permit.Err].
func (g *generation) Err() error {
	g.sem.mu.Lock()
	defer g.sem.mu.Unlock()
	why := g.why
	if why == "" && g.peer != nil && g.peer.Ended(g.sem.client.clock()) {
		why = unrenewed
	}
	if why == "" {
		return nil
	}
	return g.sem.fault("hold", 0, sema.ErrLost, why)
}

func (g *generation) describe() Lease {
	s := g.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	found := Lease{Semaphore: s.name}
	if len(g.blocks) > 0 {
		found.ID, found.Fence = g.blocks[0].fence.Seq, g.blocks[0].fence
	}
	if g.peer != nil {
		found.Left = s.left(g.peer, g.why)
	}
	return found
}

var _ sema.Backing = (*generation)(nil)

// defaultQuantum is long enough for a block to be worth its way to the engine,
// and short for people.
const defaultQuantum = 50 * time.Millisecond
