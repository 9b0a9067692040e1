package wfq

import (
	"iter"
	"runtime"
	"sync"
	"weak"
)

// names finds classes by name. It is a sync.Map because that shrinks when entries are
// deleted, unlike a map. Entries are added and deleted under the mutex of the queue.
//
// A queue has the classes that are in use, and users have Classes, which refer to them. When
// a Class is garbage-collected, its class is deleted unless it waits, holds permits, was
// set, or has used more than its share. A class is alive while its permits are, so its
// bounds hold even if a caller drops a permit.
type names struct{ entries sync.Map } // string → *entry

// An entry is a class, with what users refer to it by.
type entry struct {
	class  *class
	handle weak.Pointer[Class]
}

// find returns the Class in use for a name, or nil.
func (n *names) find(name string) *Class {
	if e, ok := n.entries.Load(name); ok {
		return e.(*entry).handle.Value()
	}
	return nil
}

// all yields the classes.
func (n *names) all(yield func(*class) bool) {
	for _, e := range n.entries.Range {
		if !yield(e.(*entry).class) {
			return
		}
	}
}

// Class returns the class with this name. It creates the class if there is none, with the
// share of [Queue.Default].
func (q *Queue) Class(name string) *Class {
	if c := q.names.find(name); c != nil {
		return c
	}
	q.lock()
	defer q.unlock()
	if c := q.names.find(name); c != nil {
		return c
	}
	var inner *class
	if e, ok := q.names.entries.Load(name); ok {
		inner = e.(*entry).class
	} else {
		q.sweepLocked(2) // more than one, so that the list shrinks while classes are created
		inner = q.newClassLocked(name)
	}
	inner.orphan.Store(false)
	c := &Class{inner}
	q.names.entries.Store(name, &entry{inner, weak.Make(c)})
	runtime.AddCleanup(c, dropClass, inner)
	return c
}

// dropClass runs after a Class of c was garbage-collected. It does not use Queue.lock, which
// reads the clock and may serve waiters: its goroutine does not belong to the
// testing/synctest bubble that the queue may be in.
func dropClass(c *class) { c.drop() }

// drop deletes a class to which no Class refers, as soon as it is idle.
func (c *class) drop() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.dropLocked()
}

func (c *class) dropLocked() {
	e, ok := c.q.names.entries.Load(c.name)
	if !ok || e.(*entry).class != c || e.(*entry).handle.Value() != nil {
		return // deleted already, or a later Class is in use
	}
	// First the flag, then a look at inUse: a release does it the other way around.
	c.orphan.Store(true)
	if !c.deleteIdleLocked() && !c.pinned && c.inUse.Load() == 0 {
		c.lingerLocked()
	}
}

// deleteIdleLocked deletes a class that nothing needs any more, and reports whether it
// did.
func (c *class) deleteIdleLocked() bool {
	q := c.q
	if c.pinned || c.inUse.Load() != 0 || c.waiters > 0 || c.aheadLocked() {
		return false
	}
	if e, ok := q.names.entries.Load(c.name); ok && e.(*entry).class == c {
		if e.(*entry).handle.Value() != nil {
			return false
		}
		q.names.entries.Delete(c.name)
		q.counts.Acquired += c.acquired()
		q.leaveTierLocked(c.tier)
	}
	q.lingering.Remove(&c.linger)
	return true
}

// lingerLocked makes the queue look again at a class that it could not delete.
func (c *class) lingerLocked() {
	if !c.linger.In() {
		c.q.lingering.PushBack(&c.linger)
	}
}

// sweepLocked looks again at up to n classes that could not be deleted.
func (q *Queue) sweepLocked(n int) {
	for range min(n, q.lingering.Len()) {
		c := q.lingering.First().Of
		q.lingering.Remove(&c.linger)
		if e, ok := q.names.entries.Load(c.name); ok && e.(*entry).handle.Value() == nil && !c.deleteIdleLocked() {
			q.lingering.PushBack(&c.linger)
		}
	}
}

// Classes yields the classes of the queue with their statistics, in no particular order.
func (q *Queue) Classes() iter.Seq2[string, Stats] {
	return func(yield func(string, Stats) bool) {
		var all []*class
		q.lock()
		q.sweepLocked(q.lingering.Len())
		for c := range q.names.all {
			all = append(all, c)
		}
		q.unlock()
		for _, c := range all {
			if !yield(c.name, c.details()) {
				return
			}
		}
	}
}

// newClassLocked returns a class with the default share.
func (q *Queue) newClassLocked(name string) *class {
	c := &class{q: q, name: name, share: q.fallback}
	c.linger.Of, c.backlogged.Of = c, c
	c.limit.Store(c.share.limit())
	c.joinTierLocked(c.share.Tier)
	c.at, c.overload.end = q.busy.at(q), q.now
	c.monitor = q.monitor.ForClass(c, name)
	c.issuer.Init((*classOwner)(c), c.monitor)
	return c
}
