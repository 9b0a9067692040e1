package wfq

import (
	"fmt"
	"math"
	"math/bits"
)

// CheckInvariants returns how the state of the queue contradicts itself, or nil. It must
// be called while no other goroutine uses the queue.
func (q *Queue) CheckInvariants() error {
	q.lock()
	defer q.unlock()
	var inUse int64
	waiters, backlog := 0, 0
	weights, queued := map[*tier]float64{}, map[*tier]int64{}
	for c := range q.names.all {
		inUse += c.inUse.Load()
		waiters += c.waiters
		if c.waiters > 0 {
			backlog++
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("class %q: %w", c.name, err)
		}
		if c.heap != nil {
			weights[c.tier] += float64(c.share.Weight)
		}
		queued[c.tier] += c.queued
	}
	if inUse+q.free != q.capacity {
		return fmt.Errorf("%d in use and %d free of %d", inUse, q.free, q.capacity)
	}
	if waiters != q.waiters || backlog != q.backlog.Len() {
		return fmt.Errorf("%d waiters in %d classes, counted %d in %d", waiters, backlog, q.waiters, q.backlog.Len())
	}
	if q.phase != open && q.waiters > 0 {
		return fmt.Errorf("%d wait though the queue admits none", q.waiters)
	}
	for _, t := range q.tiers {
		if math.Abs(weights[t]-t.weight) > 0 || queued[t] != t.queued {
			return fmt.Errorf("tier %d: weight %v and %d queued, counted %v and %d", t.level, weights[t], queued[t], t.weight, t.queued)
		}
		for _, h := range []*classHeap{&t.entitled, &t.sharing} {
			if err := h.check(); err != nil {
				return fmt.Errorf("tier %d: %w", t.level, err)
			}
		}
		if q.settings.aging > 0 && len(t.aged) != len(t.sharing.entries) {
			return fmt.Errorf("tier %d: %d in the heap of ages, %d share", t.level, len(t.aged), len(t.sharing.entries))
		}
	}
	if c := q.nextLocked(); c != nil && c.headLocked().n <= q.free {
		return fmt.Errorf("a waiter of class %q is not served though %d are free", c.name, q.free)
	}
	return nil
}

// Dependents returns the number of waiters of other queues that are registered.
func (q *Queue) Dependents() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.dependents) + int(q.dependentCount.Load())
}

// Orphans returns the number of classes that could not be deleted.
func (q *Queue) Orphans() (n int) {
	for c := range q.names.all {
		if c.orphan.Load() {
			n++
		}
	}
	return n
}

// Tiers returns the number of tiers.
func (q *Queue) Tiers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tiers)
}

// check returns how a class contradicts itself.
func (c *class) check() error {
	n, weight := 0, int64(0)
	for w := range c.allLocked {
		n++
		weight += w.n
		if w.status != waiting || w.class != c {
			return fmt.Errorf("a waiter has status %d", w.status)
		}
	}
	inUse, w := c.inUse.Load(), c.headLocked()
	var want *classHeap
	switch {
	case w == nil || inUse+w.n > c.limit.Load():
	case inUse+w.n <= c.share.Min:
		want = &c.tier.entitled
	default:
		want = &c.tier.sharing
	}
	switch {
	case n != c.waiters || weight != c.queued:
		return fmt.Errorf("%d waiters of weight %d, counted %d of %d", n, weight, c.waiters, c.queued)
	case (n > 0) != c.backlogged.In() || c.listed != bits.Len(uint(n)):
		return fmt.Errorf("%d waiters, listed at %d", n, c.listed)
	case c.heap != want:
		return fmt.Errorf("it is in the wrong heap")
	case c.asking < 0 || c.asking > inUse:
		return fmt.Errorf("%d of %d in use are being acquired", c.asking, inUse)
	case c.inUse.Load() < 0:
		return fmt.Errorf("%d in use", inUse)
	case math.IsNaN(c.start) || math.IsInf(c.start, 0):
		return fmt.Errorf("virtual time %v", c.start)
	}
	return nil
}

// check returns how a heap contradicts itself.
func (h *classHeap) check() error {
	for i, e := range h.entries {
		if e.class.heap != h || e.class.index != i {
			return fmt.Errorf("class %q is not at index %d", e.class.name, i)
		}
		if i > 0 && h.entries[(i-1)/children].key > e.key {
			return fmt.Errorf("class %q comes before its parent", e.class.name)
		}
	}
	return nil
}
