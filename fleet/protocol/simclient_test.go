package protocol_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// A client of a world wants one or two permits again and again, works, and
// gives them back, through a [protocol.Peer].
type client struct {
	world   *world
	faults  faults
	name    string
	life    int // counts crashes, and sessions: what is meant for an earlier one is void
	session protocol.Session
	peer    *protocol.Peer
	paused  protocol.Micros // until when

	ticket  protocol.Ticket
	asked   map[protocol.Ticket]work
	working map[protocol.Seq]work
}

type work struct {
	weight int64
	pooled bool
	fence  protocol.Fence
	stamp  protocol.Micros // when the engine made the fence
}

// open begins a life: a session and a first wish.
func (c *client) open() {
	c.life++
	c.peer, c.session = nil, 0
	c.asked, c.working = map[protocol.Ticket]work{}, map[protocol.Seq]work{}
	life, sent := c.life, c.world.now
	by := protocol.Opener{Client: protocol.Client{Instance: c.name}, Owner: protocol.Owner{Key: protocol.Key{byte(life), byte(life >> 8)}, Principal: c.name}}
	c.network(func() {
		id, config, err := c.world.state.Open(c.world.engineTime(), by, protocol.Version)
		if err != nil {
			c.world.fail("open: %v", err)
		}
		c.network(func() {
			c.unpaused(life, func() {
				if c.peer == nil {
					c.session, c.peer = id, protocol.NewPeer(sent, id, config, by)
					c.want(life)
					c.tick(life)
				}
			})
		})
	})
	c.after(life, 2*ttl, func() { // nothing was heard
		if c.peer == nil {
			c.open()
		}
	})
}

// tick sends what is due, and again what was not answered.
func (c *client) tick(life int) {
	now := c.world.now
	if c.peer.Ended(now) {
		c.lose()
		return
	}
	if !c.world.calm && c.faults.crash && c.world.rng.IntN(400) == 0 {
		c.lose()
		return
	}
	if !c.world.calm && c.faults.pause && c.world.rng.IntN(200) == 0 {
		c.paused = now + c.world.between(0, 3*ttl)
	}
	c.send(life)
	c.after(life, c.world.between(20*ms, 120*ms), func() { c.tick(life) })
}

func (c *client) send(life int) {
	now := c.world.now
	if c.peer.Due(now) || c.peer.Flying() {
		b := c.peer.Send(now, 8)
		c.network(func() { c.world.deliver(c, life, b) })
	}
}

// lose ends a life; another one begins some time later.
func (c *client) lose() {
	c.life++
	c.peer = nil
	c.world.at(c.world.between(0, ttl), c.open)
}

func (c *client) hinted(life int) {
	c.unpaused(life, func() {
		if c.peer != nil && !c.peer.Ended(c.world.now) && !c.peer.Flying() {
			b := c.peer.Send(c.world.now, 8)
			c.network(func() { c.world.deliver(c, life, b) })
		}
	})
}

func (c *client) hear(life int, seq uint64, r protocol.Reply, answered protocol.Micros) {
	c.unpaused(life, func() {
		if c.peer == nil {
			return
		}
		for _, f := range c.peer.Hear(c.world.now, seq, r) {
			c.result(life, f, answered)
		}
		if c.peer.Ended(c.world.now) {
			c.lose()
			return
		}
		if r.Recall {
			c.giveBack()
		}
		c.send(life)
	})
}

// giveBack gives up half of every block.
func (c *client) giveBack() {
	for _, lease := range slices.Sorted(maps.Keys(c.working)) {
		if w := c.working[lease]; w.pooled && w.weight > 1 {
			w.weight /= 2
			c.working[lease] = w
			c.peer.Wish(protocol.Op{Verb: protocol.Release, Lease: lease, Weight: w.weight})
		}
	}
}

func (c *client) result(life int, f protocol.Result, answered protocol.Micros) {
	switch f.Kind {
	case protocol.Granted:
		c.world.grants++
		w := c.asked[f.Ticket]
		w.fence, w.stamp, w.weight = f.Fence, answered, f.Weight
		delete(c.asked, f.Ticket)
		if c.faults.rate {
			c.after(life, c.world.between(0, ttl), func() { c.want(life) })
			return
		}
		if c.faults.split && w.weight == 2 && c.world.rng.IntN(2) == 0 {
			w.weight = 1
			c.ticket++
			c.asked[c.ticket] = work{weight: 1}
			c.peer.Wish(protocol.Op{Verb: protocol.Split, Ticket: c.ticket, Lease: f.Lease, Weight: 1})
		}
		c.working[f.Lease] = w
		c.write(life, f.Lease)
		c.after(life, c.world.between(0, 3*ttl), func() {
			if _, still := c.working[f.Lease]; still {
				delete(c.working, f.Lease)
				c.peer.Wish(protocol.Op{Verb: protocol.Release, Lease: f.Lease})
			}
			c.after(life, c.world.between(0, ttl), func() { c.want(life) })
		})
	case protocol.Revoked:
		delete(c.working, f.Lease)
	default:
		c.world.refused++
		delete(c.asked, f.Ticket)
		c.after(life, c.world.between(0, ttl), func() { c.want(life) })
	}
}

// want asks for permits, and may change its mind.
func (c *client) want(life int) {
	if len(c.asked) > 2 || c.world.calm {
		return
	}
	c.ticket++
	id, wanted := c.ticket, work{weight: 1 + c.world.rng.Int64N(2), pooled: c.faults.pool && c.world.rng.IntN(2) == 0}
	c.asked[id] = wanted
	least := wanted.weight
	if wanted.pooled {
		wanted.weight += c.world.rng.Int64N(3)
	}
	c.peer.Wish(protocol.Op{
		Verb: protocol.Acquire, Ticket: id, Weight: wanted.weight, Least: least, Pooled: wanted.pooled, Try: c.world.rng.IntN(5) == 0,
		Details: protocol.Details{Holder: fmt.Sprintf("ticket %d of %s", id, c.name)},
	})
	if c.faults.cancel && c.world.rng.IntN(3) == 0 {
		c.after(life, c.world.between(0, 2*ttl), func() {
			if _, waiting := c.asked[id]; waiting {
				delete(c.asked, id)
				c.peer.Wish(protocol.Op{Verb: protocol.Cancel, Ticket: id})
				c.want(life)
			}
		})
	}
}

// write sends something to the guarded resource, which arrives when it likes.
func (c *client) write(life int, lease protocol.Seq) {
	w, working := c.working[lease]
	if !working || !c.peer.Holds(c.world.now, lease) {
		return
	}
	c.world.at(c.world.between(0, 4*ttl), func() { c.world.resource.write(c.world, c, w) })
	c.after(life, c.world.between(ttl/4, ttl), func() { c.write(life, lease) })
}

// holding is the weight of what the client believes to have, by its own clock,
// at this very moment.
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

// network has something happen later, or twice, or never.
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
	if c.faults.double && w.rng.IntN(15) == 0 {
		w.at(delay(), do)
	}
}

// after does something later, in this life, when the client runs.
func (c *client) after(life int, in protocol.Micros, do func()) {
	c.world.at(in, func() { c.unpaused(life, do) })
}

// unpaused does something now, or when the pause is over.
func (c *client) unpaused(life int, do func()) {
	switch {
	case c.life != life:
	case c.paused > c.world.now:
		c.world.at(c.paused-c.world.now, func() { c.unpaused(life, do) })
	default:
		if c.peer != nil && c.peer.Ended(c.world.now) {
			c.lose()
			return
		}
		do()
	}
}

// A guard is a resource that takes part in fencing.
type guard struct {
	floor    protocol.Seq
	revoked  []protocol.Range
	accepted []work
	stale    int
}

// write is accepted unless the writer is known to be gone. Known it is if a
// fence that was made after its end was shown.
func (g *guard) write(w *world, c *client, by work) {
	f := by.fence
	inRange := func(r protocol.Range) bool { return f.Seq >= r.From && f.Seq <= r.To }
	if f.Seq < g.floor || slices.ContainsFunc(g.revoked, inRange) {
		g.stale++
		if c.peer != nil && c.peer.Holds(w.now, f.Seq) {
			w.fail("%s holds %d, and the guard refuses it", c.name, f.Seq)
		}
		return
	}
	if end, gone := w.ended[f.Seq]; gone {
		for _, other := range g.accepted {
			if other.fence.Seq > f.Seq && other.stamp > end {
				w.fail("a write of %d was accepted, which ended before %d was granted", f.Seq, other.fence.Seq)
			}
		}
	}
	g.accepted = append(g.accepted, by)
	g.floor = max(g.floor, f.Floor)
	g.revoked = append(g.revoked, f.Revoked...)
}
