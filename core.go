package sema

import (
	"sync"
	"sync/atomic"

	"github.com/sema-go/sema/internal/spinlock"
)

// An Order selects which waiter is served next. It is an [Option]. An order that lets
// callers overtake saves goroutine switches, and those overtaken wait longer:
// `go -C bench run . core --only waits` prints throughput and waits of each.
type Order uint8

const (
	// Fair serves waiters strictly in order of arrival, whatever their weights. A
	// heavy waiter at the head is never overtaken. It is the default.
	Fair Order = iota
	// Unfair lets an arriving caller take free permits ahead of the queue, which
	// saves the goroutine switch of a hand-off. A waiter that is woken, finds no free
	// permit and is older than a millisecond is served before arrivals, as with a
	// sync.Mutex. Callers that acquire again at once gain most. Those that arrive
	// independently of each other wait as with Fair.
	Unfair
	// LIFO serves the newest waiter first. Under overload some callers are served
	// quickly, while the oldest, whose clients have likely given up, time out. At 90 %
	// use its median wait is a sixth of that of Fair, and its p99.9 seven times as long.
	LIFO
)

// A status is the state of a request for permits, or its result.
type status uint8

const (
	pending          status = iota
	queued                  // waits in the queue
	granted                 // the waiter has the permits
	full                    // too few permits are free, and the caller does not wait
	queueFull               // as many callers wait as allowed
	tooLarge                // more than the capacity
	rejectedDraining        // the semaphore is draining
	closed                  // the semaphore is closed
	cancelled               // the context ended
	timedOut                // the wait limit passed
	watchDone               // not final: watch the shared context from now on
	competeNow              // not final: permits are free, compete for them
)

type phase uint8

const (
	open phase = iota
	draining
	shut
)

// A core implements every semaphore of this package. While no caller waits, the
// word is its whole state. A mutex guards the queue and all rare states.
//
// Invariants, whenever mu is unlocked:
//
//	free + in use == capacity + debt
//	debt > 0          ⇒ slow flag set, queue not served
//	phase != open     ⇒ slow flag set, queue empty
//	a queued waiter could be served by a release
//	                  ⇒ waiting flag set (or a competitor has been woken)
//	the head of a fair queue does not fit in free
type core struct {
	word atomic.Uint64 // see word.go

	mu       sync.Mutex // guards all fields below that are not fixed; see docs/locks.md
	capacity uint64     // the target, set by New, Resize and Forget
	debt     uint64     // permits held beyond capacity since a shrink
	queue    queue

	phase          phase
	starving       bool  // Unfair: arrivals may not barge because the head has waited too long
	order          Order // fixed
	parkOversize   bool  // fixed
	takeAfterClose bool  // fixed; Counter: free permits can still be taken after a close

	// The fields above fill two cache lines, which is what a hand-off writes.

	competitor  *waiter         // Unfair: woken to compete, still queued
	idleWaiters []chan struct{} // each is closed when nothing is in use
	resumed     chan struct{}   // closed by Resume, for callers of Drain; nil before Drain and after Resume
	id          uint64          // fixed; AcquireAll locks cores in this order
	queueLimit  int             // fixed; waiters allowed + 1; 0: no limit
	counts      callCounts
}

// queueLimit returns the value of core.queueLimit for [Settings].MaxWaiters.
func queueLimit(maxWaiters int) int {
	switch maxWaiters {
	case 0:
		return 0
	case NoWaiters:
		return 1
	}
	return maxWaiters + 1
}

// init sets the capacity, with all permits free. Capacity 0 needs no init.
func (c *core) init(capacity uint64) {
	c.capacity = capacity
	c.word.Store(capacity)
}

// tryTake takes n permits without waiting. It returns granted, full or a rejection.
func (c *core) tryTake(n uint64) status {
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decideLocked(n, false)
}

// tryOrWait takes n permits for a caller that may wait. It returns granted, a
// rejection, or pending if the caller has to wait.
func (c *core) tryOrWait(n uint64) status {
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decideLocked(n, true)
}

// decideLocked decides like admitLocked, for a caller that does not join the queue
// now. If mayWait, it returns pending for a caller that would have to wait.
func (c *core) decideLocked(n uint64, mayWait bool) status {
	v := c.admitLocked(n, false)
	if mayWait && (v == full || v == tooLarge && c.parkOversize) {
		v = pending
		if c.queueIsFullLocked() {
			v = queueFull
		}
	}
	c.countLocked(v)
	return v
}

// enter takes n permits (granted), is rejected, or joins the queue (pending, with
// the waiter to park). done is the context's channel, nil if it has none.
func (c *core) enter(n uint64, done <-chan struct{}) (*waiter, status) {
	c.backOff()
	if c.takeAgain(n) || c.order != Fair && c.barge(n) {
		return nil, granted
	}
	w := newWaiter(n, done) // likely needed, and not allocated under the lock
	c.lock()
	v := c.admitLocked(n, true)
	if v != pending {
		c.countLocked(v)
		c.mu.Unlock()
		recycle(w)
		return nil, v
	}
	c.enqueueLocked(w)
	c.mu.Unlock()
	return w, pending
}

func (c *core) lock() { spinlock.Lock(&c.mu) }

// backOff pauses for a quarter of a microsecond after the caller lost a race for
// the word. Two cores that compete for its cache line spend most of their time
// moving it. During the pause the other core completes several pairs
// (64 goroutines on 8 permits: 33 ns per pair without backOff, 25 ns with it).
func (c *core) backOff() {
	if c.word.Load() < slowFlag {
		for range backOffPauses {
			spinlock.Pause()
		}
	}
}

const backOffPauses = 32

// admitLocked takes n permits, rejects the request, or returns pending if mayWait.
// After pending the caller must enqueue a waiter before it unlocks mu. The waiting flag
// is set then, unless the waiter is parked or a competitor has been woken.
func (c *core) admitLocked(n uint64, mayWait bool) status {
	if v := c.phaseStatusLocked(); v != granted {
		if v == closed && c.takeAfterClose && c.takeFlaggedLocked(n) {
			return granted
		}
		return v
	}
	parked := c.oversizeLocked(n)
	if parked && !(mayWait && c.parkOversize) {
		return tooLarge
	}
	c.payDebtLocked()
	inTurn := c.debt == 0 && !c.mustQueueLocked()
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
		if c.queueIsFullLocked() {
			return queueFull
		}
		if parked || c.competitor != nil || old&waitingFlag != 0 ||
			c.word.CompareAndSwap(old, old|waitingFlag) {
			return pending
		}
	}
}

// queueIsFullLocked reports whether one more waiter would exceed the limit.
func (c *core) queueIsFullLocked() bool { return c.queueLimit > 0 && c.queue.n+1 >= c.queueLimit }

// enqueueLocked adds w to the queue, at the end that the order requires.
func (c *core) enqueueLocked(w *waiter) {
	w.parked = c.oversizeLocked(w.n)
	if c.order == Unfair {
		w.since = ticks()
	}
	if c.order == LIFO {
		c.queue.pushFront(w)
	} else {
		c.queue.pushBack(w)
	}
}

// dequeueLocked removes w from the queue.
func (c *core) dequeueLocked(w *waiter) {
	c.queue.remove(w)
	if c.competitor == w {
		c.competitor = nil
	}
}

// give returns n permits, and serves the queue if a flag is set.
func (c *core) give(n uint64) {
	if c.word.Add(n) >= slowFlag {
		c.lock()
		c.unlock(c.settleLocked())
	}
}

// unlock ends a critical section. It wakes the waiters in out after it unlocks mu,
// so that a woken goroutine does not block on mu.
func (c *core) unlock(out wakes) {
	c.mu.Unlock()
	out.deliver()
}

// oversizeLocked reports whether n can never be granted at the present capacity.
// Capacity 0 means paused: nothing is too large, and all callers wait.
func (c *core) oversizeLocked(n uint64) bool { return n > c.capacity && c.capacity > 0 }

func (c *core) inUseLocked() uint64 { return c.capacity + c.debt - c.free() }

// setCapacityLocked sets the capacity to n. A decrease that the free permits do not
// cover becomes debt. Waiters that no longer fit are rejected or parked.
func (c *core) setCapacityLocked(n uint64) wakes {
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
		c.payDebtLocked()
	}
	return c.resettleLocked()
}

// forgetLocked reduces the capacity by n permits that are held and will not return.
func (c *core) forgetLocked(n uint64) wakes {
	kept := c.capacity - min(n, c.capacity)
	c.debt -= n - (c.capacity - kept) // permits held beyond the capacity are debt
	c.capacity = kept
	return c.resettleLocked()
}

// resettleLocked settles the core after the capacity changed. It first rejects or
// parks the waiters that no longer fit, and unparks those that fit again.
func (c *core) resettleLocked() wakes {
	var out wakes
	for w := c.queue.head; w != nil; {
		next := w.next
		over := c.oversizeLocked(w.n)
		if over && (!c.parkOversize || w.joint != nil) {
			c.finishLocked(w, tooLarge, &out)
		} else {
			c.queue.setParked(w, over)
		}
		w = next
	}
	c.settleIntoLocked(&out)
	return out
}

// rejectAllLocked rejects all waiters, and all new callers until resumeLocked.
func (c *core) rejectAllLocked(to phase) wakes {
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
		c.finishLocked(w, why, &out)
		w = next
	}
	c.settleIntoLocked(&out)
	return out
}

// finishLocked removes w from the queue with a final status. A joint waiter counts
// its own result.
func (c *core) finishLocked(w *waiter, v status, out *wakes) {
	c.dequeueLocked(w)
	if w.joint == nil {
		c.countLocked(v)
	} else if !w.joint.decide(v) {
		return
	}
	w.status = v
	out.add(w)
}

// takeAll takes all permits that are free now, unless arriving callers must queue.
func (c *core) takeAll() (uint64, status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, v := c.takeFreeLocked()
	c.countLocked(v)
	return n, v
}

func (c *core) takeFreeLocked() (uint64, status) {
	if v := c.phaseStatusLocked(); v != granted {
		return 0, v
	}
	c.payDebtLocked()
	if c.debt > 0 || c.mustQueueLocked() {
		return 0, full
	}
	n := c.takeUpToLocked(maxCount)
	if n == 0 {
		return 0, full
	}
	return n, granted
}

// mustQueueLocked reports whether an arriving caller has to queue behind others. In
// a LIFO queue it would be ahead of them.
func (c *core) mustQueueLocked() bool {
	return c.queue.servable() > 0 && (c.order == Fair || c.starving)
}

// checkOpen returns granted, or the status with which even a request of weight 0 is
// rejected.
func (c *core) checkOpen() status {
	if !c.has(slowFlag) {
		return granted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.phaseStatusLocked()
	if v == closed && c.takeAfterClose && c.free() > 0 {
		v = granted
	}
	c.countLocked(v)
	return v
}

func (c *core) phaseStatusLocked() status {
	switch c.phase {
	case shut:
		return closed
	case draining:
		return rejectedDraining
	}
	return granted
}

// waiters returns the number of queued callers.
func (c *core) waiters() int {
	if !c.queue.occupied.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.n
}

// exhausted reports whether no permit is free or a queued caller waits for one.
func (c *core) exhausted() bool {
	if !c.queue.occupied.Load() {
		return c.free() == 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free() == 0 || c.queue.servable() > 0
}
