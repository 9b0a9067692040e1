package protocol_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// A client of a world acquires one or two permits again and again, works, and
// releases them, through a [protocol.Peer].
type client struct {
	world   *world
	faults  faults
	name    string
	epoch   int // counts crashes and sessions; events of an earlier one are ignored
	session protocol.Session
	peer    *protocol.Peer
	paused  protocol.Micros // time at which the pause ends

	ticket    protocol.Ticket
	requested map[protocol.Ticket]work
	working   map[protocol.Seq]work
}

type work struct {
	weight int64
	pooled bool
	fence  protocol.Fence
	stamp  protocol.Micros // when the store created the fence
}

// open opens a session and requests permits.
func (c *client) open() {
	c.epoch++
	c.peer, c.session = nil, 0
	c.requested, c.working = map[protocol.Ticket]work{}, map[protocol.Seq]work{}
	epoch, sent := c.epoch, c.world.now
	by := protocol.Opener{Client: protocol.Client{Instance: c.name}, Owner: protocol.Owner{Key: protocol.Key{byte(epoch), byte(epoch >> 8)}, Principal: c.name}}
	c.network(func() {
		id, config, err := c.world.state.Open(c.world.storeTime(), by, protocol.Version)
		if err != nil {
			c.world.fail("open: %v", err)
		}
		c.network(func() {
			c.unpaused(epoch, func() {
				if c.peer == nil {
					c.session, c.peer = id, protocol.NewPeer(sent, id, config, by)
					c.request(epoch)
					c.tick(epoch)
				}
			})
		})
	})
	c.after(epoch, 2*ttl, func() { // no reply was received
		if c.peer == nil {
			c.open()
		}
	})
}

// tick sends what is due, and sends again what got no reply.
func (c *client) tick(epoch int) {
	now := c.world.now
	if c.peer.Ended(now) {
		c.restart()
		return
	}
	if !c.world.calm && c.faults.crash && c.world.rng.IntN(400) == 0 {
		c.restart()
		return
	}
	if !c.world.calm && c.faults.pause && c.world.rng.IntN(200) == 0 {
		c.paused = now + c.world.between(0, 3*ttl)
	}
	c.send(epoch)
	c.after(epoch, c.world.between(20*ms, 120*ms), func() { c.tick(epoch) })
}

func (c *client) send(epoch int) {
	now := c.world.now
	if c.peer.Due(now) {
		b := c.peer.Send(now, 8)
		c.network(func() { c.world.deliver(c, epoch, b) })
	}
}

// restart drops the session; a new one is opened some time later.
func (c *client) restart() {
	c.epoch++
	c.peer = nil
	c.world.at(c.world.between(0, ttl), c.open)
}

func (c *client) notified(epoch int) {
	c.unpaused(epoch, func() {
		if c.peer != nil && !c.peer.Ended(c.world.now) && !c.peer.InFlight() {
			b := c.peer.Send(c.world.now, 8)
			c.network(func() { c.world.deliver(c, epoch, b) })
		}
	})
}

func (c *client) receive(epoch int, seq uint64, r protocol.Reply, repliedAt protocol.Micros) {
	c.unpaused(epoch, func() {
		if c.peer == nil {
			return
		}
		for _, f := range c.peer.Receive(c.world.now, seq, r) {
			c.result(epoch, f, repliedAt)
		}
		if c.peer.Ended(c.world.now) {
			c.restart()
			return
		}
		if r.Recall {
			c.shrinkBlocks()
		}
		c.send(epoch)
	})
}

// shrinkBlocks releases half of every block.
func (c *client) shrinkBlocks() {
	for _, lease := range slices.Sorted(maps.Keys(c.working)) {
		if w := c.working[lease]; w.pooled && w.weight > 1 {
			w.weight /= 2
			c.working[lease] = w
			c.peer.Request(protocol.Op{Verb: protocol.Release, Lease: lease, Weight: w.weight})
		}
	}
}

func (c *client) result(epoch int, f protocol.Result, repliedAt protocol.Micros) {
	switch f.Kind {
	case protocol.Granted:
		c.world.grants++
		w := c.requested[f.Ticket]
		w.fence, w.stamp, w.weight = f.Fence, repliedAt, f.Weight
		delete(c.requested, f.Ticket)
		if c.faults.settle {
			c.settle(epoch, f)
		}
		if c.faults.rate {
			c.after(epoch, c.world.between(0, ttl), func() { c.request(epoch) })
			return
		}
		if c.faults.split && w.weight == 2 && c.world.rng.IntN(2) == 0 {
			w.weight = 1
			c.ticket++
			c.requested[c.ticket] = work{weight: 1}
			c.peer.Request(protocol.Op{Verb: protocol.Split, Ticket: c.ticket, Lease: f.Lease, Weight: 1})
		}
		c.working[f.Lease] = w
		c.write(epoch, f.Lease)
		c.after(epoch, c.world.between(0, 3*ttl), func() {
			if _, still := c.working[f.Lease]; still {
				delete(c.working, f.Lease)
				c.peer.Request(protocol.Op{Verb: protocol.Release, Lease: f.Lease})
			}
			c.after(epoch, c.world.between(0, ttl), func() { c.request(epoch) })
		})
	case protocol.Revoked:
		delete(c.working, f.Lease)
	default:
		c.world.rejected++
		delete(c.requested, f.Ticket)
		c.after(epoch, c.world.between(0, ttl), func() { c.request(epoch) })
	}
}

// request requests permits, and may cancel the request later.
func (c *client) request(epoch int) {
	if len(c.requested) > 2 || c.world.calm {
		return
	}
	c.ticket++
	id, wanted := c.ticket, work{weight: 1 + c.world.rng.Int64N(2), pooled: c.faults.pool && c.world.rng.IntN(2) == 0}
	c.requested[id] = wanted
	least := wanted.weight
	if wanted.pooled {
		wanted.weight += c.world.rng.Int64N(3)
	}
	c.peer.Request(protocol.Op{
		Verb: protocol.Acquire, Ticket: id, Weight: wanted.weight, Least: least, Pooled: wanted.pooled, Try: c.world.rng.IntN(5) == 0,
		Details: &protocol.Details{Holder: fmt.Sprintf("ticket %d of %s", id, c.name)},
	})
	if c.faults.cancel && c.world.rng.IntN(3) == 0 {
		c.after(epoch, c.world.between(0, 2*ttl), func() {
			if _, waiting := c.requested[id]; waiting {
				delete(c.requested, id)
				c.peer.Request(protocol.Op{Verb: protocol.Cancel, Ticket: id})
				c.request(epoch)
			}
		})
	}
}

// write sends a write to the guarded resource, which arrives after a random delay.
func (c *client) write(epoch int, lease protocol.Seq) {
	w, working := c.working[lease]
	if !working || !c.peer.Holds(c.world.now, lease) {
		return
	}
	c.world.at(c.world.between(0, 4*ttl), func() { c.world.resource.write(c.world, c, w) })
	c.after(epoch, c.world.between(ttl/4, ttl), func() { c.write(epoch, lease) })
}

// holding returns the weight that the client holds now by its own clock.
func (c *client) holding() (sum int64) {
	if c.peer == nil {
		return 0
	}
	for lease, w := range c.working {
		if c.peer.Holds(c.world.now, lease) {
			sum += w.weight
		}
	}
	return sum
}

// network runs do later, twice, or never.
func (c *client) network(do func()) {
	w := c.world
	if !w.calm && c.faults.loss && w.rng.IntN(20) == 0 {
		return
	}
	delay := func() protocol.Micros {
		if !w.calm && c.faults.delay && w.rng.IntN(30) == 0 {
			return w.between(0, 3*ttl)
		}
		return w.between(100, 5*ms)
	}
	w.at(delay(), do)
	if c.faults.duplicate && w.rng.IntN(15) == 0 {
		w.at(delay(), do)
	}
}

// after runs do later, in the same epoch, when the client is not paused.
func (c *client) after(epoch int, in protocol.Micros, do func()) {
	c.world.at(in, func() { c.unpaused(epoch, do) })
}

// unpaused runs do now, or when the pause is over.
func (c *client) unpaused(epoch int, do func()) {
	switch {
	case c.epoch != epoch:
	case c.paused > c.world.now:
		c.world.at(c.paused-c.world.now, func() { c.unpaused(epoch, do) })
	default:
		if c.peer != nil && c.peer.Ended(c.world.now) {
			c.restart()
			return
		}
		do()
	}
}

// A guard is a resource that checks fences.
type guard struct {
	floor    protocol.Seq
	revoked  []protocol.Range
	accepted []work
	stale    int
}

// write accepts a write unless the fences show that its lease has ended. They do if a fence was
// shown that was created after the end.
func (g *guard) write(w *world, c *client, by work) {
	f := by.fence
	inRange := func(r protocol.Range) bool { return f.Seq >= r.From && f.Seq <= r.To }
	if f.Seq < g.floor || slices.ContainsFunc(g.revoked, inRange) {
		g.stale++
		if c.peer != nil && c.peer.Holds(w.now, f.Seq) {
			w.fail("%s holds %d, but the guard rejects it", c.name, f.Seq)
		}
		return
	}
	if end, gone := w.ended[f.Seq]; gone {
		for _, other := range g.accepted {
			if other.fence.Seq > f.Seq && other.stamp > end {
				w.fail("a write of lease %d was accepted, which ended before %d was granted", f.Seq, other.fence.Seq)
			}
		}
	}
	g.accepted = append(g.accepted, by)
	g.floor = max(g.floor, f.Floor)
	g.revoked = append(g.revoked, f.Revoked...)
}
