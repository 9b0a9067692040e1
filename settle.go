package sema

import "time"

// settleLocked restores the invariants of the core after permits were returned, or
// the capacity or the queue changed. Every critical section that may have made a
// waiter servable ends with it. The result must be delivered after unlocking.
func (c *core) settleLocked() wakes {
	var out wakes
	c.settleIntoLocked(&out)
	return out
}

func (c *core) settleIntoLocked(out *wakes) {
	// Set flags before serving and clear them afterwards: a release in between
	// sees the flag and settles again.
	c.raiseFlagsLocked()
	c.payDebtLocked()
	if c.debt == 0 && c.phase == open {
		if c.order == Unfair {
			c.serveUnfairLocked(out)
		} else {
			c.serveLocked(out)
		}
	}
	if len(c.idleWaiters) > 0 && c.inUseLocked() == 0 {
		for _, idle := range c.idleWaiters {
			close(idle)
		}
		c.idleWaiters = nil
	}
	c.lowerFlagsLocked()
}

func (c *core) flagsLocked() (up uint64) {
	if c.queue.servable() > 0 && c.competitor == nil {
		up |= waitingFlag
	}
	if c.phase != open || c.debt > 0 || c.starving || len(c.idleWaiters) > 0 {
		up |= slowFlag
	}
	return up
}

func (c *core) raiseFlagsLocked() {
	if up := c.flagsLocked(); c.word.Load()&up != up {
		c.raise(up)
	}
}

func (c *core) lowerFlagsLocked() {
	const all = waitingFlag | slowFlag
	if down := all &^ c.flagsLocked(); c.word.Load()&down != 0 {
		c.lower(down)
	}
}

func (c *core) payDebtLocked() {
	if c.debt > 0 {
		c.debt -= c.takeUpToLocked(c.debt)
	}
}

// serveLocked grants free permits from the head of the queue on, until one waiter
// does not fit. Going on to a lighter waiter would starve the heavy one.
func (c *core) serveLocked(out *wakes) {
	for w := c.queue.head; w != nil; {
		next := w.next
		switch {
		case w.parked:
		case w.joint != nil:
			if !c.tryJointLocked(w, out) {
				return
			}
		case !c.takeFlaggedLocked(w.n):
			return
		default:
			c.finishLocked(w, granted, out)
		}
		w = next
	}
}

// tryJointLocked handles a joint waiter at the head of the queue. It schedules an
// attempt if the joint's share of this core fits. It reports whether the waiters
// behind the joint may be served.
func (c *core) tryJointLocked(w *waiter, out *wakes) (proceed bool) {
	if w.joint.decided() {
		c.dequeueLocked(w) // rejected elsewhere; its owner has not removed it yet
		return true
	}
	if c.free() >= w.n {
		rare := out.ensureRare()
		rare.joints = append(rare.joints, w.joint)
	}
	// A LIFO queue serves the waiters behind a joint: two joints may be queued here in
	// the reverse of their order elsewhere, and would block each other for ever.
	return c.order == LIFO
}

// starveAfter is how long a waiter may be overtaken, as in sync.Mutex.
const starveAfter = time.Millisecond

// serveUnfairLocked wakes the head to compete with arrivals, one competitor at a
// time. Meanwhile the waiting flag is cleared, so releases do not lock mu. A head
// that has waited too long is handed its permits instead.
func (c *core) serveUnfairLocked(out *wakes) {
	for {
		w := c.firstServableLocked()
		if w == nil {
			c.starving = false
			return
		}
		handOff := c.starving || w.joint != nil || w.ticket != nil
		switch {
		case handOff && w.joint != nil:
			c.tryJointLocked(w, out)
		case handOff && c.takeFlaggedLocked(w.n):
			c.finishLocked(w, granted, out)
			next := c.firstServableLocked()
			c.starving = c.starving && next != nil && next.overdue()
			continue
		case handOff:
		case c.competitor != nil:
			return
		case c.free() >= w.n:
			c.competitor = w
			w.token <- competeNow
			return
		}
		if c.starving || !w.overdue() {
			return
		}
		c.starving = true
		c.raise(slowFlag)
	}
}

func (c *core) firstServableLocked() *waiter {
	for w := c.queue.head; w != nil; {
		next := w.next
		if w.joint != nil && w.joint.decided() {
			c.dequeueLocked(w)
		} else if !w.parked {
			return w
		}
		w = next
	}
	return nil
}
