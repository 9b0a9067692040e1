package main

import "github.com/sema-go/sema/fleet/protocol"

// A region is a process beside a region's store. It holds blocks of the global
// semaphore and makes them the capacity of the regional one. To the global
// store it is what an instance is to the regional one, with three differences.
//
// First, its blocks are in use as long as the regional store has lent them: the
// region lowers the capacity first and releases only what has been returned.
// Second, replies of the regional store state for how long the blocks are
// valid, so no instance relies on them for longer. Third, it releases more
// slowly than an instance, because its round trips are long: only what was free
// for surplusWindow.
type region struct {
	world        *world
	id           int32 // of its link
	store        *store
	demandFactor float64 // demand is multiplied by it

	blocks []block         // the oldest first
	held   int64           // the sum of their weights
	low    int64           // minimum free in the current window
	since  protocol.Micros // start of the window of low

	busy int64           // permits in use by its instances
	area float64         // integral of busy over the measured time
	last protocol.Micros // when busy changed
}

// surplusWindow is twice the longest round trip. What was not needed for that
// long can be acquired again in half of that time.
const surplusWindow = 240 * ms

func (r *region) link() *link { return &r.world.links[r.id] }

func (r *region) holdings(l *link) holdings {
	return holdings{r.store.inUse, max(0, r.held-r.store.inUse), l.spare, l.lent, l.recalled, l.peer.InFlight()}
}

// valid returns for how long the blocks are valid; replies of the regional
// store contain it.
func (r *region) valid() protocol.Micros {
	l := r.link()
	switch {
	case r.world.p.injectedBug == ignoresLease:
		return 0
	case l.peer == nil || l.peer.Ended(r.world.now):
		return -1
	}
	return l.peer.Deadline() - r.world.now
}

// review runs after a batch at the regional store and after a reply of the
// global one. It releases what is not needed and acquires what is missing.
func (r *region) review() {
	w, l, e := r.world, r.link(), r.store
	if l.peer == nil || l.peer.Ended(w.now) {
		return
	}
	keep := r.keep(l)
	e.resize(keep)
	r.release(l, keep)
	short := e.inUse + e.wanted - r.held
	if targetFree := r.targetFree(l); !l.pending && (short > 0 || l.recalled == 0 && -short < targetFree/2) {
		l.acquire(max(1, w.p.policy.want(max(0, short), r.holdings(l)), short+targetFree))
	}
	w.flush(r.id)
}

// targetFree returns how much the region tries to keep free: what is needed
// before more could arrive.
func (r *region) targetFree(l *link) int64 {
	if r.world.p.policy == doubling {
		return 0
	}
	return max(r.holdings(l).cushion(r.store.inUse), r.held/32)
}

// keep returns how much of what is held may be lent.
func (r *region) keep(l *link) int64 {
	w, s := r.world, r.holdings(l)
	if l.recalled > 0 {
		return r.keepRecalled(l, s)
	}
	r.low = min(r.low, s.free)
	if w.now-r.since < surplusWindow {
		return r.held
	}
	surplus := max(0, r.low-r.targetFree(l))
	if w.p.policy == doubling {
		surplus = 0
	}
	r.low, r.since = s.free-surplus, w.now
	return r.held - surplus
}

// keepRecalled returns how much may be lent while other regions wait: the
// blocks that are not retired, or an even share if that is more, minus what the
// policy yields.
func (r *region) keepRecalled(l *link, s holdings) int64 {
	w, young := r.world, int64(0)
	for _, b := range r.blocks {
		if !b.retired(w.now, l.recalled, w.p.regionQuantum) {
			young += b.weight
		}
	}
	keep := max(young, min(l.share, r.held))
	if r.store.wanted == 0 {
		s.free = max(0, keep-s.used)
		keep -= w.p.policy.yield(s)
	}
	return keep
}

// release releases to the global store, from the oldest blocks, what exceeds
// keep and is not lent.
func (r *region) release(l *link, keep int64) {
	back := r.held - max(keep, r.store.inUse)
	if r.world.p.injectedBug == releasesLent {
		back = r.held - keep
	}
	if back <= 0 {
		return
	}
	r.held -= back
	n := 0
	for _, b := range r.blocks {
		if part := min(back, b.weight); part > 0 {
			back -= part
			b.weight -= part
			l.peer.Request(protocol.Op{Verb: protocol.Release, Lease: b.lease, Weight: part})
		}
		if b.weight > 0 {
			r.blocks[n] = b
			n++
		}
	}
	r.blocks = r.blocks[:n]
}

func (r *region) heartbeat() {
	l := r.link()
	if part := r.world.p.policy.decay(r.holdings(l)); part > 1 {
		r.store.resize(r.held - part)
		r.release(l, r.held-part)
	}
}

func (r *region) granted(results []protocol.Result) {
	for _, f := range results {
		if f.Kind == protocol.Granted {
			r.blocks = append(r.blocks, block{lease: f.Lease, weight: f.Weight, since: r.world.now})
			r.held += f.Weight
		}
	}
}

// sessionLost handles the end of the session with the global store. By now the
// instances have lost all permits that depend on it, because the replies of the
// regional store stated until when these are valid.
func (r *region) sessionLost() {
	r.world.m.outlived += r.busy
	if r.world.p.injectedBug == ignoresLease {
		return
	}
	r.blocks, r.held = r.blocks[:0], 0
	r.store.resize(0)
}

// accumulate adds the permits in use since the last change to the integral.
func (r *region) accumulate(now protocol.Micros) {
	r.area += float64(r.busy) * float64(now-r.last)
	r.last = now
}
