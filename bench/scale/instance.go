package main

import "github.com/sema-go/sema/fleet/protocol"

// An instance is one of many processes that acquire permits repeatedly. It
// holds blocks of permits from its region's store and serves its callers from
// them at local speed. If no permit is free, callers wait in the instance's own
// queue.
type instance struct {
	world  *world
	id     int32 // also of its link
	region *region

	blocks  []block // the oldest first
	free    int64   // permits of all blocks
	used    int64
	queue   []protocol.Micros // arrival times of the waiting callers; from head on
	head    int
	crashes uint32 // number of crashes

	offered, served int64 // while measuring
}

func (in *instance) link() *link { return &in.world.links[in.id] }

func (in *instance) holdings(l *link) holdings {
	return holdings{in.used, in.free, l.spare, l.lent, l.recalled, l.peer.InFlight()}
}

// arrive handles the arrival of a caller and schedules the next one.
func (in *instance) arrive(e event) {
	if e.generation != in.crashes {
		return // it crashed meanwhile
	}
	in.next()
	if in.world.measuring {
		in.offered++
	}
	in.queue = append(in.queue, in.world.now)
	if in.free > 0 || !in.link().pending {
		in.review()
	}
}

func (in *instance) next() {
	w := in.world
	gap := w.rng.ExpFloat64() * float64(second) / (w.p.rate * in.region.demandFactor)
	w.schedule(event{at: w.now + protocol.Micros(gap), kind: arrival, index: in.id, generation: in.crashes})
}

// review grants permits to the queue, releases surplus permits and acquires
// what is missing.
func (in *instance) review() {
	w, l := in.world, in.link()
	if l.peer == nil || l.peer.Ended(w.now) {
		return
	}
	for in.free > 0 && in.waiting() > 0 {
		b := in.usable(l)
		if b == nil {
			break
		}
		in.serve(b)
	}
	if in.free > 0 {
		in.returnSurplus(l)
	}
	if short := in.waiting(); short > 0 && !l.pending {
		l.acquire(w.p.policy.want(short, in.holdings(l)))
	}
	w.flush(in.id)
}

// waiting returns the length of the queue, after removing callers that timed
// out.
func (in *instance) waiting() int64 {
	w := in.world
	for in.head < len(in.queue) && w.now-in.queue[in.head] > w.p.timeout {
		in.head++
		w.m.timedOut++
	}
	if in.head == len(in.queue) {
		in.queue, in.head = in.queue[:0], 0
	}
	return int64(len(in.queue) - in.head)
}

// usable returns the youngest block that has free permits and may be reused.
func (in *instance) usable(l *link) *block {
	for i := len(in.blocks) - 1; i >= 0; i-- {
		b := &in.blocks[i]
		if b.used < b.weight && !b.retired(in.world.now, l.recalled, in.world.p.quantum) {
			return b
		}
	}
	return nil
}

// serve grants a permit to the first caller in the queue.
func (in *instance) serve(b *block) {
	w := in.world
	if w.measuring {
		w.m.waits.add(w.now - in.queue[in.head])
		in.served++
	}
	in.head++
	b.used++
	in.free--
	in.used++
	w.addInUse(in.region, 1)
	hold := protocol.Micros(w.rng.ExpFloat64() * float64(w.p.hold))
	w.schedule(event{at: w.now + hold, kind: holdEnd, index: in.id, generation: in.link().generation, lease: b.lease})
}

// done handles the end of a hold.
func (in *instance) done(e event) {
	if e.generation != in.link().generation {
		return // the permit was lost meanwhile
	}
	for i := range in.blocks {
		if b := &in.blocks[i]; b.lease == e.lease {
			b.used--
			break
		}
	}
	in.free++
	in.used--
	in.world.addInUse(in.region, -1)
	in.review()
}

// returnSurplus releases what the policy yields, and everything that is free in
// blocks that must not be reused.
func (in *instance) returnSurplus(l *link) {
	w := in.world
	if l.recalled == 0 {
		in.release(l, w.p.policy.surplus(in.holdings(l)))
		return
	}
	if in.waiting() == 0 {
		in.release(l, w.p.policy.yield(in.holdings(l)))
	}
	for i := range in.blocks {
		if b := &in.blocks[i]; b.retired(w.now, l.recalled, w.p.quantum) {
			in.releaseFrom(l, b, b.weight-b.used)
		}
	}
	in.dropEmptyBlocks()
}

// release releases weight, from the oldest blocks.
func (in *instance) release(l *link, weight int64) {
	if weight == 0 {
		return
	}
	for i := range in.blocks {
		b := &in.blocks[i]
		part := min(weight, b.weight-b.used)
		in.releaseFrom(l, b, part)
		weight -= part
	}
	in.dropEmptyBlocks()
}

func (in *instance) releaseFrom(l *link, b *block, weight int64) {
	if weight > 0 {
		b.weight -= weight
		in.free -= weight
		l.peer.Request(protocol.Op{Verb: protocol.Release, Lease: b.lease, Weight: weight})
	}
}

// dropEmptyBlocks removes blocks without weight.
func (in *instance) dropEmptyBlocks() {
	n := 0
	for _, b := range in.blocks {
		if b.weight > 0 {
			in.blocks[n] = b
			n++
		}
	}
	in.blocks = in.blocks[:n]
}

func (in *instance) heartbeat() {
	l := in.link()
	in.release(l, in.world.p.policy.decay(in.holdings(l)))
}

func (in *instance) granted(results []protocol.Result) {
	for _, f := range results {
		if f.Kind == protocol.Granted {
			in.blocks = append(in.blocks, block{lease: f.Lease, weight: f.Weight, since: in.world.now})
			in.free += f.Weight
		}
	}
}

// sessionLost handles the end of a session: its permits must not be used any
// more.
func (in *instance) sessionLost() {
	in.world.m.lost += in.used
	in.world.addInUse(in.region, -in.used)
	in.blocks, in.free, in.used = in.blocks[:0], 0, 0
}
