package wfq

import (
	"math/bits"
	"slices"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/list"
)

// A tier has the classes of one rank that wait. The mutex of the queue guards it.
type tier struct {
	level    int
	classes  int       // that have this tier; without them it is deleted
	entitled classHeap // classes that get less than their Min
	sharing  classHeap // classes that compete by weight
	aged     agedHeap
	weight   float64 // of the classes in both heaps
	queued   int64   // weight of all waiters

	virtual  float64 // see virtual.go
	furthest float64 // the most that a class has used
	at       int64   // when virtual was last advanced, in ns

	// lengths has the classes with waiters by the bit length of their number, so that a
	// class with one of the longest queues is found at once.
	lengths [65]list.List[*class]
}

// tierLocked returns the tier of a level.
func (q *Queue) tierLocked(level int) *tier {
	i, found := slices.BinarySearchFunc(q.tiers, level, func(t *tier, level int) int {
		switch {
		case t.level > level:
			return -1
		case t.level < level:
			return 1
		}
		return 0
	})
	if !found {
		q.tiers = slices.Insert(q.tiers, i, &tier{level: level, at: q.now})
	}
	return q.tiers[i]
}

// joinTierLocked adds a class to a tier, which it then refers to.
func (c *class) joinTierLocked(level int) {
	c.tier = c.q.tierLocked(level)
	c.tier.classes++
}

// changeTierLocked moves a class from one tier to another, which may be the same.
func (c *class) changeTierLocked(level int) {
	from := c.tier
	c.joinTierLocked(level)
	c.q.leaveTierLocked(from)
}

// leaveTierLocked removes a class from a tier, and the tier if it has no other.
func (q *Queue) leaveTierLocked(t *tier) {
	if t.classes--; t.classes == 0 {
		q.tiers = slices.DeleteFunc(q.tiers, func(other *tier) bool { return other == t })
	}
}

// placeLocked puts the class into the heap in which it competes now, or in none if it has
// no waiters or is at its limit. It must be called after every change of the class.
func (c *class) placeLocked() {
	var to *classHeap
	inUse := c.inUse.Load()
	switch w := c.headLocked(); {
	case w == nil || inUse+w.n > c.limit.Load():
	case inUse+w.n <= c.share.Min:
		to = &c.tier.entitled
	default:
		to = &c.tier.sharing
	}
	if from := c.heap; from != to {
		c.tier.advanceLocked(c.q) // by the classes that competed until now
		if from != nil {
			from.remove(c)
			c.tier.weight -= float64(c.share.Weight)
		}
		if to != nil {
			if from == nil {
				c.catchUpLocked()
			}
			c.tier.weight += float64(c.share.Weight)
		}
	}
	if to != nil {
		to.put(c, c.keyLocked())
	}
	c.placeAgedLocked()
}

// relevelLocked moves the class to the tier of its most urgent waiter.
func (c *class) relevelLocked() {
	level := c.share.Tier
	if len(c.urgent) > 0 {
		level = max(level, c.urgent[0].level)
	}
	if level != c.tier.level {
		c.moveLocked(func() { c.changeTierLocked(level) })
	}
}

// moveLocked removes the class from its tier, changes it, and adds it to the tier that it
// has then, with the same advantage or delay.
func (c *class) moveLocked(change func()) {
	c.integrateLocked()
	if c.heap != nil {
		c.heap.remove(c)
		c.tier.weight -= float64(c.share.Weight)
	}
	c.removeAgedLocked()
	c.unlistLocked()
	c.tier.queued -= c.queued
	c.tier.advanceLocked(c.q)
	ahead := c.start - c.tier.virtual
	change()
	c.tier.advanceLocked(c.q)
	c.start = c.tier.virtual + ahead
	c.tier.furthest = max(c.tier.furthest, c.start)
	c.tier.queued += c.queued
	c.relistLocked()
	c.placeLocked()
}

// setShareLocked changes the share of a class.
func (c *class) setShareLocked(s Share) {
	if s == c.share {
		return
	}
	c.moveLocked(func() {
		c.share = s
		c.limit.Store(s.limit())
		c.changeTierLocked(s.Tier)
	})
	c.relevelLocked()
}

// relistLocked lists the class by the number of its waiters.
func (c *class) relistLocked() {
	if k := bits.Len(uint(c.waiters)); k != c.listed {
		c.unlistLocked()
		if c.listed = k; k > 0 {
			c.length.Of = c
			c.tier.lengths[k].PushBack(&c.length)
		}
	}
}

func (c *class) unlistLocked() {
	c.tier.lengths[c.listed].Remove(&c.length)
	c.listed = 0
}

// longestLocked returns a class of the tier with one of the longest queues, or nil, and
// the bit length of its number of waiters.
func (t *tier) longestLocked() (*class, int) {
	for k := len(t.lengths) - 1; k > 0; k-- {
		if first := t.lengths[k].First(); first != nil {
			return first.Of, k
		}
	}
	return nil, 0
}

var (
	errDisplacedByTier   = &detailed{sema.ErrQueueFull, "displaced by a caller of a higher tier"}
	errDisplacedByLength = &detailed{sema.ErrQueueFull, "displaced by a caller of a class with fewer waiters"}
)

// displacedLocked returns the waiter that leaves to make room for w: the newest one of the
// lowest tier, if that is below the tier of w, or of the same tier, if that class has at least
// about twice as many waiters as that of w. It returns nil if there is none.
func (q *Queue) displacedLocked(w *waiter) *waiter {
	for _, t := range slices.Backward(q.tiers) {
		victim, length := t.longestLocked()
		if victim == nil {
			continue
		}
		if t.level > w.level || t.level == w.level && length <= bits.Len(uint(w.class.waiters+1)) {
			return nil
		}
		if last := victim.queue.Last(); last != nil {
			return last.Of
		}
		return nil // all have inherited their tier
	}
	return nil
}
