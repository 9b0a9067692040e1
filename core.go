package sema

import (
	"sync"
	"sync/atomic"
)

// An Order selects which waiter is served next. It is an [Option].
type Order uint8

const (
	// Fair serves strictly in order of arrival, whatever the weights: a heavy
	// waiter at the head is never overtaken. The default.
	Fair Order = iota
	// Unfair lets an arrival take free permits past the queue, which spares the
	// switch of goroutines that each hand-off costs. A waiter older than a
	// millisecond ends that: until it is served, none overtakes.
	Unfair
	// LIFO serves the newest waiter first: under overload some callers are
	// served quickly while the oldest, likely given up on already, time out.
	LIFO
)

// A status is the state of a request for permits, or how it ended.
type status uint8

const (
	pending          status = iota
	queued                  // waits in the queue
	granted                 // the permits are the waiter's
	full                    // a try found too little free
	queueFull               // there are as many waiters as allowed
	tooLarge                // more than the capacity
	rejectedDraining        // the semaphore is draining
	closed                  // the semaphore is closed
	cancelled               // the context ended
	timedOut                // the wait limit passed
	watchDone               // not final: watch the shared context from now on
	competeNow              // not final: permits are free, come and take them
)

type phase uint8

const (
	open phase = iota
	draining
	shut
)

// A core is the mechanism under every semaphore here: a word that is enough while
// no caller waits, and behind a mutex the queue and all that is rare.
//
// Invariants, whenever mu is free:
//
//	free + in use == capacity + debt
//	debt > 0          ⇒ slow flag up, queue not served
//	phase != open     ⇒ slow flag up, queue empty
//	somebody queued who could be served by a release
//	                  ⇒ waiting flag up (or a competitor is on its way)
//	the head of a fair queue does not fit in free
type core struct {
	word atomic.Uint64 // see word.go

	mu       sync.Mutex // guards all below that is not fixed; see docs/locks.md
	capacity uint64     // the target: what New, Resize and Forget made it
	debt     uint64     // permits held beyond capacity since a shrink
	queue    queue

	phase        phase
	starving     bool  // Unfair: arrivals may not barge, for the head has waited too long
	order        Order // fixed
	parkOversize bool  // fixed
	keepsLeft    bool  // fixed; what is free when it is closed can still be taken: a Counter

	// All above is two cache lines, which is what a hand-off writes.

	competitor *waiter         // Unfair: woken to compete, still queued
	idlers     []chan struct{} // each closed when nothing is in use
	resumed    chan struct{}   // closed by Resume, for callers of Drain; nil if there are none
	id         uint64          // fixed; the order in which AcquireAll locks
	queueLimit int             // fixed; waiters allowed + 1; 0: no limit
	counts     tallies
}

// queueLimit returns the field of that name for a MaxWaiters of [Settings].
func queueLimit(maxWaiters int) int {
	switch maxWaiters {
	case 0:
		return 0
	case NoWaiters:
		return 1
	}
	return maxWaiters + 1
}

// init gives the core its permits. Capacity 0 needs no init.
func (c *core) init(capacity uint64) {
	c.capacity = capacity
	c.word.Store(capacity)
}

// tryTake takes n permits without waiting: granted, full, or a rejection.
func (c *core) tryTake(n uint64) status {
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.admit(n, false)
	c.tally(v)
	return v
}

// tryOrWait is tryTake for somebody who is ready to wait: pending if it has to.
func (c *core) tryOrWait(n uint64) status {
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.admit(n, false)
	if v == full || v == tooLarge && c.parkOversize {
		v = pending
		if c.queueIsFull() {
			v = queueFull
		}
	}
	c.tally(v)
	return v
}

// enter takes n permits now (granted), is rejected, or joins the queue (pending,
// with the waiter to park). done is the context's channel, nil if it has none.
func (c *core) enter(n uint64, done <-chan struct{}) (*waiter, status) {
	c.backOff()
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return nil, granted
	}
	w := newWaiter(n, done) // likely needed, and not to be made under the lock
	c.lock()
	v := c.admit(n, true)
	if v != pending {
		c.tally(v)
		c.mu.Unlock()
		recycle(w)
		return nil, v
	}
	c.enqueue(w)
	c.mu.Unlock()
	return w, pending
}

// lock locks mu. What is done under it takes some 50 ns, but sync.Mutex parks
// a goroutine at once when others are runnable on its processor, as they are
// in a convoy; trying a little longer saves that (13 % of a hand-off).
func (c *core) lock() {
	for range lockTries {
		if c.mu.TryLock() {
			return
		}
		pause()
	}
	c.mu.Lock()
}

const lockTries = 16

// backOff keeps off the word for a quarter of a microsecond after it was taken
// from under the caller's hands. Two cores that fight for its cache line spend
// most of their time moving it; let alone, one gets several pairs done
// meanwhile (64 goroutines on 8 permits: 33 ns per pair without, 25 with).
func (c *core) backOff() {
	if c.word.Load() < slowFlag {
		for range backOffPauses {
			pause()
		}
	}
}

const backOffPauses = 32

// pause lets some ten nanoseconds pass.
//
//go:noinline
func pause() {
	for range 16 {
	}
}

// admit decides about n permits with mu held. After pending the waiting flag
// is up and the caller must push a waiter before it unlocks.
func (c *core) admit(n uint64, mayWait bool) status {
	if v := c.phaseStatus(); v != granted {
		if v == closed && c.keepsLeft && c.takeFlagged(n) {
			return granted
		}
		return v
	}
	parked := c.oversize(n)
	if parked && !(mayWait && c.parkOversize) {
		return tooLarge
	}
	c.payDebt()
	inTurn := c.debt == 0 && !c.mustQueue()
	for {
		old := c.word.Load()
		if inTurn && !parked && old&freeMask >= n {
			if c.word.CompareAndSwap(old, old-n) {
				return granted
			}
			continue
		}
		if !mayWait {
			return full
		}
		if c.queueIsFull() {
			return queueFull
		}
		if parked || c.competitor != nil || old&waitingFlag != 0 ||
			c.word.CompareAndSwap(old, old|waitingFlag) {
			return pending
		}
	}
}

// queueIsFull reports whether one more would be too many.
func (c *core) queueIsFull() bool { return c.queueLimit > 0 && c.queue.n+1 >= c.queueLimit }

// enqueue adds w to the queue, where the order says.
func (c *core) enqueue(w *waiter) {
	w.parked = c.oversize(w.n)
	if c.order == Unfair {
		w.since = ticks()
	}
	if c.order == LIFO {
		c.queue.pushFront(w)
	} else {
		c.queue.pushBack(w)
	}
}

// dequeue takes w off the queue, for whatever reason.
func (c *core) dequeue(w *waiter) {
	c.queue.remove(w)
	if c.competitor == w {
		c.competitor = nil
	}
}

// give returns n permits.
func (c *core) give(n uint64) {
	if c.word.Add(n) >= slowFlag {
		c.lock()
		c.unlock(c.settle())
	}
}

// unlock ends a critical section: it wakes those the section decided about
// outside the lock, so that a woken goroutine never runs into it.
func (c *core) unlock(out wakes) {
	c.mu.Unlock()
	out.deliver()
}

// oversize reports whether n can never be granted at the present capacity.
// Capacity 0 means paused: nothing is too large, everybody waits.
func (c *core) oversize(n uint64) bool { return n > c.capacity && c.capacity > 0 }

func (c *core) inUse() uint64 { return c.capacity + c.debt - c.free() }

// setCapacity makes the capacity n. What cannot be taken back from the free
// permits becomes debt; waiters that no longer fit are rejected.
func (c *core) setCapacity(n uint64) wakes {
	if n >= c.capacity {
		grown := n - c.capacity
		paid := min(c.debt, grown)
		c.debt -= paid
		c.capacity = n
		c.word.Add(grown - paid)
	} else {
		lost := c.capacity - n
		c.capacity = n
		c.debt += lost
		c.payDebt()
	}
	return c.resettle()
}

// forget shrinks the capacity by n permits that are held and will not return.
func (c *core) forget(n uint64) wakes {
	kept := c.capacity - min(n, c.capacity)
	c.debt -= n - (c.capacity - kept) // beyond capacity, only debt can be out
	c.capacity = kept
	return c.resettle()
}

// resettle is settle after the capacity changed: who fits has changed too.
func (c *core) resettle() wakes {
	var out wakes
	for w := c.queue.head; w != nil; {
		next := w.next
		over := c.oversize(w.n)
		if over && (!c.parkOversize || w.joint != nil) {
			c.finish(w, tooLarge, &out)
		} else {
			c.queue.setParked(w, over)
		}
		w = next
	}
	c.settleInto(&out)
	return out
}

// rejectAll rejects all queued callers and all arrivals, until resumed.
func (c *core) rejectAll(to phase) wakes {
	why := rejectedDraining
	if to == shut {
		why = closed
	}
	var out wakes
	if c.phase != shut {
		c.phase = to
	}
	for w := c.queue.head; w != nil; {
		next := w.next
		c.finish(w, why, &out)
		w = next
	}
	c.settleInto(&out)
	return out
}

// finish takes w off the queue with a final status. A joint waiter counts itself.
func (c *core) finish(w *waiter, v status, out *wakes) {
	c.dequeue(w)
	if w.joint == nil {
		c.tally(v)
	} else if !w.joint.decide(v) {
		return
	}
	w.status = v
	out.add(w)
}

// takeAll takes what is free now, unless arrivals must queue.
func (c *core) takeAll() (uint64, status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, v := c.takeFree()
	c.tally(v)
	return n, v
}

func (c *core) takeFree() (uint64, status) {
	if v := c.phaseStatus(); v != granted {
		return 0, v
	}
	c.payDebt()
	if c.debt > 0 || c.mustQueue() {
		return 0, full
	}
	n := c.takeUpTo(maxCount)
	if n == 0 {
		return 0, full
	}
	return n, granted
}

// mustQueue reports whether an arrival has to queue behind others. In a LIFO
// queue it would be before them.
func (c *core) mustQueue() bool {
	return c.queue.servable() > 0 && (c.order == Fair || c.starving)
}

// closedFor is granted, or why even a request for nothing is rejected.
func (c *core) closedFor() status {
	if !c.has(slowFlag) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.phaseStatus()
	if v == closed && c.keepsLeft && c.free() > 0 {
		v = granted
	}
	c.tally(v)
	return v
}

func (c *core) phaseStatus() status {
	switch c.phase {
	case shut:
		return closed
	case draining:
		return rejectedDraining
	}
	return granted
}

// waiters returns how many callers are queued.
func (c *core) waiters() int {
	if !c.queue.occupied.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.n
}

// exhausted reports whether nothing is free or somebody waits for it.
func (c *core) exhausted() bool {
	if !c.queue.occupied.Load() {
		return c.free() == 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free() == 0 || c.queue.servable() > 0
}
