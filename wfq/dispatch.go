package wfq

import (
	"container/heap"
	"math"
)

// dispatchLocked serves waiters in turn. It stops at the first that does not fit into what
// is free: no other waiter overtakes it, or else one of many permits would never be served.
// What is free is reserved for it then, and its class is charged for that.
func (q *Queue) dispatchLocked() {
	for q.waiters > 0 && q.free > 0 {
		c := q.nextLocked()
		if c == nil {
			break
		}
		w := c.headLocked()
		if w.n > q.free {
			q.reserveLocked(c, q.free)
			return
		}
		if c.shedsLocked(w) {
			q.rejectLocked(w, ErrOverloaded)
			continue
		}
		if q.blocker == c {
			q.reserveLocked(nil, 0)
		}
		c.leftLocked(w.n)
		q.removeLocked(w)
		q.takeLocked(w)
		c.chargeLocked(float64(w.n)) // a nanosecond each, so that classes alternate even if the clock stands still
		c.placeLocked()
		w.finishLocked(granted, nil)
	}
	q.reserveLocked(nil, 0)
}

// reserveLocked records for which class n permits stay free.
func (q *Queue) reserveLocked(c *class, n int64) {
	if q.blocker == c && q.reserved == n {
		return
	}
	for _, affected := range []*class{q.blocker, c} {
		if affected != nil {
			affected.integrateLocked()
		}
	}
	q.blocker, q.reserved = c, n
}

// headLocked returns the waiter of the class that is served next, or nil.
func (c *class) headLocked() *waiter {
	if len(c.urgent) > 0 {
		return c.urgent[0]
	}
	end := c.queue.First()
	if c.share.Order == LIFO || c.share.Order == AdaptiveLIFO && c.overload.on {
		end = c.queue.Last()
	}
	if end == nil {
		return nil
	}
	return end.Of
}

// nextLocked returns the class whose turn it is, or nil if none competes: first classes
// below their Min, then those of the highest tier, and among these the one of the least
// virtual time.
func (q *Queue) nextLocked() *class {
	for _, t := range q.tiers {
		if c := q.leastLocked(&t.entitled); c != nil {
			return c
		}
	}
	var next *class
	level := 0
	for _, t := range q.tiers {
		c := q.leastLocked(&t.sharing)
		if c == nil {
			continue
		}
		if next == nil {
			next, level = c, t.level
		}
		if q.settings.aging == 0 {
			break
		}
		// At the same level, the tier that has been raised has waited for longer.
		if to := t.raisedLocked(q); to > t.level && to >= level {
			next, level = c, to
		}
	}
	return next
}

// leastLocked returns the class of the heap whose turn it is, or nil. That of a class for
// which permits are reserved does not end before it is served: what was reserved would be
// in vain, and again the next time.
func (q *Queue) leastLocked(h *classHeap) *class {
	if q.blocker != nil && q.blocker.heap == h {
		return q.blocker
	}
	return h.leastLocked()
}

// An agedHeap orders the classes of a tier that compete by the arrival of the waiter that
// each serves next. It is empty unless the queue has the option Aging. It implements
// [heap.Interface].
type agedHeap []agedEntry

type agedEntry struct {
	since int64
	class *class
}

func (h agedHeap) Len() int           { return len(h) }
func (h agedHeap) Less(i, j int) bool { return h[i].since < h[j].since }
func (h agedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].class.aged, h[j].class.aged = i+1, j+1
}
func (h *agedHeap) Push(x any) {
	e := x.(agedEntry)
	*h = append(*h, e)
	e.class.aged = len(*h)
}
func (h *agedHeap) Pop() any {
	last := (*h)[len(*h)-1]
	last.class.aged = 0
	(*h)[len(*h)-1] = agedEntry{}
	*h = (*h)[:len(*h)-1]
	return last
}

// placeAgedLocked updates the position of the class in the heap of its tier.
func (c *class) placeAgedLocked() {
	if c.q.settings.aging == 0 {
		return
	}
	if c.heap != &c.tier.sharing {
		c.removeAgedLocked()
		return
	}
	h := &c.tier.aged
	since := c.headLocked().since
	if c.aged == 0 {
		heap.Push(h, agedEntry{since, c})
	} else if (*h)[c.aged-1].since != since {
		(*h)[c.aged-1].since = since
		heap.Fix(h, c.aged-1)
	}
}

func (c *class) removeAgedLocked() {
	if c.aged > 0 {
		heap.Remove(&c.tier.aged, c.aged-1)
	}
}

// raisedLocked returns the level to which the wait of its oldest head raises the tier.
// Which class of the tier is served then, is decided by their shares as ever.
func (t *tier) raisedLocked(q *Queue) int {
	by := min((q.now-t.aged[0].since)/q.settings.aging, math.MaxInt)
	if level := t.level + int(by); level >= t.level {
		return level
	}
	return math.MaxInt // the sum has overflowed
}
