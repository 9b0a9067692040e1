package main

import "github.com/sema-go/sema/fleet/protocol"

// A region is a process beside a region's engine that has blocks of the global
// semaphore and makes them the capacity of the regional one. It is to the global
// engine what an instance is to the regional one, with three differences. What
// it has is in use as long as the regional engine has lent it: the capacity is
// lowered first, and only what has come back is given back. Answers of the
// regional engine say for how long the blocks are surely the region's, so that
// no instance trusts them longer. And it is slower to give back than an
// instance, because it is far away: only what was free for a while.
type region struct {
	world  *world
	id     int32 // of its link
	engine *engine
	crowd  float64 // by which demand is multiplied

	blocks []block         // the oldest first
	held   int64           // what they weigh
	low    int64           // the least that was free lately
	since  protocol.Micros // when that began

	busy int64           // permits in use by its instances
	area float64         // of busy over time, while it is measured
	last protocol.Micros // when busy changed
}

// lately is twice the longest round trip: what was not needed for so long can be
// had again in half of that.
const lately = 240 * ms

func (r *region) link() *link { return &r.world.links[r.id] }

func (r *region) stake(l *link) stake {
	return stake{r.engine.inUse, max(0, r.held-r.engine.inUse), l.spare, l.lent, l.recalled, l.peer.Flying()}
}

// valid is for how long the blocks are surely the region's, as a regional answer
// says it.
func (r *region) valid() protocol.Micros {
	l := r.link()
	switch {
	case r.world.p.sabotage == deaf:
		return 0
	case l.peer == nil || l.peer.Ended(r.world.now):
		return -1
	}
	return l.peer.Deadline() - r.world.now
}

// review is when the regional engine was asked something, or the global one has
// answered: is there something to give back, or is there too little?
func (r *region) review() {
	w, l, e := r.world, r.link(), r.engine
	if l.peer == nil || l.peer.Ended(w.now) {
		return
	}
	keep := r.keep(l)
	e.resize(keep)
	r.release(l, keep)
	short := e.inUse + e.wanted - r.held
	if ready := r.ready(l); !l.asking && (short > 0 || l.recalled == 0 && -short < ready/2) {
		l.ask(max(1, w.p.policy.want(max(0, short), r.stake(l)), short+ready))
	}
	w.flush(r.id)
}

// ready is how much the region would like to have free: what is needed before
// more of it could come.
func (r *region) ready(l *link) int64 {
	if r.world.p.policy == doubling {
		return 0
	}
	return max(r.stake(l).cushion(r.engine.inUse), r.held/32)
}

// keep is how much of what is held may be lent.
func (r *region) keep(l *link) int64 {
	w, s := r.world, r.stake(l)
	if l.recalled > 0 {
		return r.keepRecalled(l, s)
	}
	r.low = min(r.low, s.free)
	if w.now-r.since < lately {
		return r.held
	}
	surplus := max(0, r.low-r.ready(l))
	if w.p.policy == doubling {
		surplus = 0
	}
	r.low, r.since = s.free-surplus, w.now
	return r.held - surplus
}

// keepRecalled is what may be lent while other regions wait: blocks that are not
// retired, or an even share if that is more, without what is yielded.
func (r *region) keepRecalled(l *link, s stake) int64 {
	w, young := r.world, int64(0)
	for _, b := range r.blocks {
		if !b.retired(w.now, l.recalled, w.p.regionQuantum) {
			young += b.weight
		}
	}
	keep := max(young, min(l.share, r.held))
	if r.engine.wanted == 0 {
		s.free = max(0, keep-s.used)
		keep -= w.p.policy.yield(s)
	}
	return keep
}

// release gives back to the global engine, from the oldest blocks, what is not
// to be kept and is not lent.
func (r *region) release(l *link, keep int64) {
	back := r.held - max(keep, r.engine.inUse)
	if r.world.p.sabotage == giveLent {
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
			l.peer.Wish(protocol.Op{Verb: protocol.Release, Lease: b.lease, Weight: part})
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
	if part := r.world.p.policy.decay(r.stake(l)); part > 1 {
		r.engine.resize(r.held - part)
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

// lose is the end of the session with the global engine. What the instances had
// of it they have lost by now, for they were told until when it is valid.
func (r *region) lose() {
	r.world.m.outlived += r.busy
	if r.world.p.sabotage == deaf {
		return
	}
	r.blocks, r.held = r.blocks[:0], 0
	r.engine.resize(0)
}

// settle adds up what was in use since that last changed.
func (r *region) settle(now protocol.Micros) {
	r.area += float64(r.busy) * float64(now-r.last)
	r.last = now
}
