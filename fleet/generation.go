package fleet

import (
	"slices"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A generation is a set of blocks that are used and given up together.
type generation struct {
	of    *pooled
	local *sema.Semaphore // of which the permits are
	lost  chan struct{}
	over  chan struct{} // closed when it is the front no more

	internal atomic.Int64 // permits of local that no caller was given

	// Guarded by session.mu.
	peer     *protocol.Peer // the session that has the blocks
	born     protocol.Micros
	blocks   []block // the oldest first
	held     int64   // what they weigh
	capacity int64   // what may be lent; less than held while it is given back
	why      string  // it was lost
}

// A block is a lease of many permits.
type block struct {
	fence  protocol.Fence
	weight int64
}

// acquired returns how many permits of the generation callers have acquired.
func (g *generation) acquired() int64 { return g.local.Stats().Acquired - g.internal.Load() }

// confine lowers the capacity to what is held. A caller may have acquired something
// between the two steps; that is held, too. The mutex is held.
func (g *generation) confine() {
	g.shrink(g.local.Stats().InUse)
	if debt := g.local.Stats().Debt; debt > 0 && g.capacity+debt <= g.held {
		g.capacity += debt
		g.local.Resize(g.capacity)
	}
}

// collect waits for the permits of a retired generation.
func (s *pooled) collect(g *generation) {
	for {
		p, err := g.local.Acquire(s.client.life, 1)
		if err != nil {
			return // lost, or the client is closed
		}
		g.internal.Add(1)
		p.Release()
		if s.collected(g) {
			return
		}
	}
}

// collected returns to the store what was released, and reports whether that was all.
func (s *pooled) collected(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.peer != s.peer || !slices.Contains(s.retired, g) {
		return true // it is dropped already
	}
	g.confine()
	if g.held > 0 {
		return false
	}
	s.drop(g)
	return true
}

// drop forgets a generation that is over, but for its count.
func (s *pooled) drop(g *generation) {
	s.acquired += g.acquired()
	s.retired = slices.DeleteFunc(s.retired, func(other *generation) bool { return other == g })
}

// shrink lowers what may be lent out. The mutex is held.
func (g *generation) shrink(capacity int64) {
	if capacity < g.capacity {
		g.capacity = capacity
		g.local.Resize(capacity)
	}
	g.settle()
}

// settle returns to the store what is neither to be lent nor held: the youngest blocks
// first, so that the fence of the oldest is valid for all that is held. The mutex is
// held.
func (g *generation) settle() {
	for back := g.held - max(g.capacity, g.local.Stats().InUse); back > 0; {
		last := &g.blocks[len(g.blocks)-1]
		n := min(back, last.weight)
		op := protocol.Op{Verb: protocol.Release, Lease: last.fence.Seq, Weight: n}
		last.weight -= n
		if last.weight == 0 {
			op.Weight = 0
			g.blocks = g.blocks[:len(g.blocks)-1]
		}
		g.held -= n
		back -= n
		g.of.release(op)
	}
}

// lose ends a generation, with its held permits. The mutex is held.
func (g *generation) lose(why string) {
	g.disown(why)
	g.local.Close()
}

// disown notifies holders that their permits are lost. The mutex is held.
func (g *generation) disown(why string) {
	if g.why != "" {
		return
	}
	g.why = why
	close(g.lost)
	if held := g.local.Stats().InUse; held > 0 {
		g.of.report(sema.Event{Kind: sema.EventLost, Weight: held, Err: g.of.fault("hold", held, sema.ErrLost, why)})
	}
}

// without ends a generation that has lost a block. It is the front no more, and is
// dropped when it has nothing left to return. The mutex is held.
func (s *pooled) without(g *generation, why string) {
	g.disown(why)
	g.shrink(min(g.capacity, g.held))
	switch {
	case g.held == 0:
		if g == s.front {
			s.nextFront()
		}
		g.local.Close()
		s.drop(g)
	case g == s.front:
		s.retire()
	}
}

// Lost implements [sema.Permit.Lost].
func (g *generation) Lost() <-chan struct{} { return g.lost }

// Err implements [sema.Permit.Err].
func (g *generation) Err() error {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	why := g.why
	if why == "" && g.peer != nil && g.peer.Ended(g.of.client.clock()) {
		why = unrenewed
	}
	if why == "" {
		return nil
	}
	return g.of.fault("hold", 0, sema.ErrLost, why)
}

func (g *generation) describe() Lease {
	s := g.of
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
