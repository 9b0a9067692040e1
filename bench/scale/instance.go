package main

import "github.com/sema-go/sema/fleet/protocol"

// An instance is one of many processes that want permits again and again. It
// has blocks of them from its region's engine and serves its callers from these
// at local speed; callers for whom there is none stand in a line of its own.
type instance struct {
	world  *world
	id     int32 // also of its link
	region *region

	blocks []block // the oldest first
	free   int64   // of all blocks
	used   int64
	line   []protocol.Micros // when those in it came; from head on
	head   int
	starts uint32 // counts crashes

	offered, served int64 // while it is measured
}

func (in *instance) link() *link { return &in.world.links[in.id] }

func (in *instance) stake(l *link) stake {
	return stake{in.used, in.free, l.spare, l.lent, l.recalled, l.peer.Flying()}
}

// arrive is a caller, and the next one is on its way.
func (in *instance) arrive(e event) {
	if e.life != in.starts {
		return // it crashed meanwhile
	}
	in.next()
	if in.world.measuring {
		in.offered++
	}
	in.line = append(in.line, in.world.now)
	if in.free > 0 || !in.link().asking {
		in.review()
	}
}

func (in *instance) next() {
	w := in.world
	gap := w.rng.ExpFloat64() * float64(second) / (w.p.rate * in.region.crowd)
	w.file(event{at: w.now + protocol.Micros(gap), kind: arrives, who: in.id, life: in.starts})
}

// review gives permits to those in line, gives back what is to be given back,
// and asks for what is missing.
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
		in.take(b)
	}
	if in.free > 0 {
		in.giveBack(l)
	}
	if short := in.waiting(); short > 0 && !l.asking {
		l.ask(w.p.policy.want(short, in.stake(l)))
	}
	w.flush(in.id)
}

// waiting is how many are in line. Those who have lost patience leave.
func (in *instance) waiting() int64 {
	w := in.world
	for in.head < len(in.line) && w.now-in.line[in.head] > w.p.patience {
		in.head++
		w.m.gaveUp++
	}
	if in.head == len(in.line) {
		in.line, in.head = in.line[:0], 0
	}
	return int64(len(in.line) - in.head)
}

// usable is the youngest block with something free that may be reused.
func (in *instance) usable(l *link) *block {
	for i := len(in.blocks) - 1; i >= 0; i-- {
		b := &in.blocks[i]
		if b.used < b.weight && !b.retired(in.world.now, l.recalled, in.world.p.quantum) {
			return b
		}
	}
	return nil
}

// take serves the first in line.
func (in *instance) take(b *block) {
	w := in.world
	if w.measuring {
		w.m.waits.add(w.now - in.line[in.head])
		in.served++
	}
	in.head++
	b.used++
	in.free--
	in.used++
	w.busy(in.region, 1)
	hold := protocol.Micros(w.rng.ExpFloat64() * float64(w.p.hold))
	w.file(event{at: w.now + hold, kind: holdEnds, who: in.id, life: in.link().life, lease: b.lease})
}

// done is the end of a hold.
func (in *instance) done(e event) {
	if e.life != in.link().life {
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
	in.world.busy(in.region, -1)
	in.review()
}

// giveBack gives up what others need more, and all that is free of blocks that
// are not to be reused.
func (in *instance) giveBack(l *link) {
	w := in.world
	if l.recalled == 0 {
		in.give(l, w.p.policy.surplus(in.stake(l)))
		return
	}
	if in.waiting() == 0 {
		in.give(l, w.p.policy.yield(in.stake(l)))
	}
	for i := range in.blocks {
		if b := &in.blocks[i]; b.retired(w.now, l.recalled, w.p.quantum) {
			in.giveOf(l, b, b.weight-b.used)
		}
	}
	in.tidy()
}

// give gives back, from the oldest blocks.
func (in *instance) give(l *link, weight int64) {
	if weight == 0 {
		return
	}
	for i := range in.blocks {
		b := &in.blocks[i]
		part := min(weight, b.weight-b.used)
		in.giveOf(l, b, part)
		weight -= part
	}
	in.tidy()
}

func (in *instance) giveOf(l *link, b *block, weight int64) {
	if weight > 0 {
		b.weight -= weight
		in.free -= weight
		l.peer.Wish(protocol.Op{Verb: protocol.Release, Lease: b.lease, Weight: weight})
	}
}

// tidy forgets blocks of which nothing is left.
func (in *instance) tidy() {
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
	in.give(l, in.world.p.policy.decay(in.stake(l)))
}

func (in *instance) granted(results []protocol.Result) {
	for _, f := range results {
		if f.Kind == protocol.Granted {
			in.blocks = append(in.blocks, block{lease: f.Lease, weight: f.Weight, since: in.world.now})
			in.free += f.Weight
		}
	}
}

// lose is the end of a session: nothing of it may be used any more.
func (in *instance) lose() {
	in.world.m.lost += in.used
	in.world.busy(in.region, -in.used)
	in.blocks, in.free, in.used = in.blocks[:0], 0, 0
}
