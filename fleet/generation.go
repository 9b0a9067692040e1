package fleet

import (
	"slices"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A generation is a set of blocks that are used and retired together.
type generation struct {
	of    *pooled
	local *sema.Semaphore // grants the permits
	lost  chan struct{}
	over  chan struct{} // closed when it stops being the front

	internal atomic.Int64 // permits of local that were not acquired for callers

	// Guarded by session.mu.
	peer     *protocol.Peer // session of the blocks
	born     protocol.Micros
	blocks   []block // oldest first
	held     int64   // total weight of blocks
	capacity int64   // what may be granted; less than held while permits are returned
	why      string  // reason of the loss; "" while the permits are held
}

// A block is a lease of many permits.
type block struct {
	fence  protocol.Fence
	weight int64
}

// acquired returns how many permits callers have acquired from the generation.
func (g *generation) acquired() int64 { return g.local.Stats().Acquired - g.internal.Load() }

// confineLocked lowers the capacity to the permits in use. If a caller has acquired some
// between the two steps, those count, too.
func (g *generation) confineLocked() {
	g.shrinkLocked(g.local.Stats().InUse)
	if debt := g.local.Stats().Debt; debt > 0 && g.capacity+debt <= g.held {
		g.capacity += debt
		g.local.Resize(g.capacity)
	}
}

// collect waits until the permits of a retired generation are released.
func (s *pooled) collect(g *generation) {
	for {
		p, err := g.local.Acquire(s.client.life, 1)
		if err != nil {
			return // lost, or the client is closed
		}
		g.internal.Add(1)
		p.Release()
		if s.returnReleased(g) {
			return
		}
	}
}

// returnReleased returns released permits to the store, and reports whether none are left.
func (s *pooled) returnReleased(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.peer != s.peer || !slices.Contains(s.retired, g) {
		return true // dropped before
	}
	g.confineLocked()
	if g.held > 0 {
		return false
	}
	s.dropLocked(g)
	return true
}

// dropLocked removes a retired generation and keeps its count.
func (s *pooled) dropLocked(g *generation) {
	s.acquired += g.acquired()
	s.retired = slices.DeleteFunc(s.retired, func(other *generation) bool { return other == g })
}

// shrinkLocked lowers the capacity of the generation.
func (g *generation) shrinkLocked(capacity int64) {
	if capacity < g.capacity {
		g.capacity = capacity
		g.local.Resize(capacity)
	}
	g.settleLocked()
}

// settleLocked returns permits to the store that are neither in use nor within the
// capacity. It starts with the youngest block, so that the fence of the oldest block is
// valid for all held permits.
func (g *generation) settleLocked() {
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
		g.of.releaseLocked(op)
	}
}

// loseLocked ends a generation. Its held permits are lost.
func (g *generation) loseLocked(why string) {
	g.notifyLostLocked(why)
	g.local.Close()
}

// notifyLostLocked notifies the holders that their permits are lost.
func (g *generation) notifyLostLocked(why string) {
	if g.why != "" {
		return
	}
	g.why = why
	close(g.lost)
	if held := g.local.Stats().InUse; held > 0 {
		g.of.counts.countLost(why)
		g.of.report(sema.Event{Kind: sema.EventLost, Weight: held, Err: g.of.fault("hold", held, sema.ErrLost, why)})
	}
}

// endAfterRevokeLocked ends a generation that has lost a block. It stops being the front,
// and is dropped when it has nothing left to return.
func (s *pooled) endAfterRevokeLocked(g *generation, why string) {
	g.notifyLostLocked(why)
	g.shrinkLocked(min(g.capacity, g.held))
	switch {
	case g.held == 0:
		if g == s.front {
			s.nextFrontLocked()
		}
		g.local.Close()
		s.dropLocked(g)
	case g == s.front:
		s.retireLocked()
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
		why = reasonNotRenewed
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
		found.Left = s.leftLocked(g.peer, g.why)
	}
	return found
}

var _ sema.Backing = (*generation)(nil)
