package wfq

import (
	"context"
	"math"
	"slices"

	"github.com/sema-go/sema"
)

// Priority inheritance: a caller that waits at queue B while it holds a permit of queue A
// delays those that wait at A. So it waits at B in the highest tier of those that wait at A.
// It registers as a dependent of A while it waits. Waiters that come to A later raise their
// dependents, and a waiter that is raised raises the dependents of its own queue in turn.
// A caller is not lowered again before it is served, even if the waiters at A have left:
// nothing would be gained by moving it back.
//
// No mutex of a queue is locked while that of another is held.

// inherits reports whether inherit has something to do. It is false in most programs.
func (w *waiter) inherits(ctx context.Context) bool {
	return len(sema.Held(ctx)) > 0 || w.class.q.dependentCount.Load() > 0
}

// inherit registers w with the queues whose permits its context carries. The function that
// it returns ends that.
func (w *waiter) inherit(ctx context.Context) (end func()) {
	var at []*Queue
	for _, p := range sema.Held(ctx) {
		for c := classOf(&p); c != nil; c = classOf(&p) {
			if c.q != w.class.q && !slices.Contains(at, c.q) {
				at = append(at, c.q)
				if level, ok := c.q.register(w); ok {
					w.class.q.raise(w, level)
				}
			}
		}
	}
	if q := w.class.q; q.dependentCount.Load() > 0 {
		q.mu.Lock()
		level := w.levelLocked()
		q.mu.Unlock()
		q.raiseDependents(level)
	}
	return func() {
		for _, q := range at {
			q.mu.Lock()
			delete(q.dependents, w)
			q.dependentCount.Add(-1)
			q.mu.Unlock()
		}
	}
}

// classOf returns the class that granted a permit, or nil. It replaces the permit by that of
// the gate behind the queue, or by an inert one.
func classOf(p *sema.Permit) *class {
	owner, lease := p.Owner(), p.Lease()
	*p = sema.Permit{}
	if c, ok := owner.(*classOwner); ok {
		return (*class)(c)
	}
	if l, ok := lease.(*overLease); ok {
		*p = l.under
		return l.class
	}
	return nil
}

// levelLocked returns the tier at which w waits: that of its class, or a higher one that it
// inherits.
func (w *waiter) levelLocked() int {
	if w.node.In() {
		return w.class.share.Tier
	}
	return w.level
}

// register makes w a dependent of q. It returns the tier that w inherits now, if any.
func (q *Queue) register(w *waiter) (level int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dependents == nil {
		q.dependents = make(map[*waiter]struct{})
	}
	q.dependents[w] = struct{}{}
	q.dependentCount.Add(1)
	defer func() {
		if !ok {
			level = math.MinInt
		}
		q.dependentLevel = min(q.dependentLevel, level)
	}()
	if q.settings.ceiling != nil {
		level, ok = *q.settings.ceiling, true
	}
	for _, t := range q.tiers {
		if t.queued > 0 {
			if !ok || t.level > level {
				level, ok = t.level, true
			}
			break
		}
	}
	return level, ok
}

// raiseDependents raises the waiters of other queues that hold permits of q. If all of them
// have been raised before, that costs nothing, however many there are.
func (q *Queue) raiseDependents(level int) {
	q.mu.Lock()
	var all []*waiter
	if level > q.dependentLevel {
		q.dependentLevel = level
		for w := range q.dependents {
			all = append(all, w)
		}
	}
	q.mu.Unlock()
	for _, w := range all {
		w.class.q.raise(w, level)
	}
}

// raise moves a waiter of q to a higher tier, ahead of those of its class. It raises the
// dependents of q, too. The recursion ends, even in a cycle: each step raises a waiter.
func (q *Queue) raise(w *waiter, level int) {
	q.lock()
	raised := w.status == waiting && w.levelLocked() < level
	if raised {
		c := w.class
		if w.node.In() {
			c.queue.Remove(&w.node)
		} else {
			c.urgent = slices.DeleteFunc(c.urgent, func(other *waiter) bool { return other == w })
		}
		w.level = level
		i := slices.IndexFunc(c.urgent, func(other *waiter) bool { return other.level < level })
		if i < 0 {
			i = len(c.urgent)
		}
		c.urgent = slices.Insert(c.urgent, i, w)
		c.relevelLocked()
		c.placeLocked()
	}
	q.unlock()
	if raised {
		q.raiseDependents(level)
	}
}
