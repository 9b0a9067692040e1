package sema

import "time"

// settle brings the core to rest after permits came back, the capacity or the
// line changed. Every critical section that may have made a waiter servable
// ends with it; c.mu is held. The result must be delivered after unlocking.
func (c *core) settle() wakes {
	var out wakes
	c.settleInto(&out)
	return out
}

func (c *core) settleInto(out *wakes) {
	// Raise before looking and lower after: a release that comes in between
	// sees the flag and settles again.
	c.raiseFlags()
	c.payDebt()
	if c.debt == 0 && c.phase == open {
		if c.order == Unfair {
			c.serveUnfair(out)
		} else {
			c.serve(out)
		}
	}
	if len(c.idlers) > 0 && c.inUse() == 0 {
		for _, idle := range c.idlers {
			close(idle)
		}
		c.idlers = nil
	}
	c.lowerFlags()
}

func (c *core) flags() (up uint64) {
	if c.queue.servable() > 0 && c.competitor == nil {
		up |= waitingFlag
	}
	if c.phase != open || c.debt > 0 || c.starving || len(c.idlers) > 0 {
		up |= slowFlag
	}
	return up
}

func (c *core) raiseFlags() {
	if up := c.flags(); c.word.Load()&up != up {
		c.raise(up)
	}
}

func (c *core) lowerFlags() {
	const all = waitingFlag | slowFlag
	if down := all &^ c.flags(); c.word.Load()&down != 0 {
		c.lower(down)
	}
}

func (c *core) payDebt() {
	if c.debt > 0 {
		c.debt -= c.takeUpTo(c.debt)
	}
}

// serve hands free permits to the head of the queue until one does not fit.
// To go on to a lighter waiter would starve the heavy one.
func (c *core) serve(out *wakes) {
	for w := c.queue.head; w != nil; {
		next := w.next
		switch {
		case w.parked:
		case w.joint != nil:
			if !c.meetJoint(w, out) {
				return
			}
		case !c.takeFlagged(w.n):
			return
		default:
			c.finish(w, granted, out)
		}
		w = next
	}
}

// meetJoint deals with a joint waiter found at the head: it asks for an
// attempt when this part fits and reports whether to go on behind it.
func (c *core) meetJoint(w *waiter, out *wakes) (goOn bool) {
	if w.joint.decided() {
		c.dequeue(w) // rejected elsewhere, its owner has not come to tidy up yet
		return true
	}
	if c.free() >= w.n {
		rare := out.others()
		rare.joints = append(rare.joints, w.joint)
	}
	// A LIFO queue lets others pass: two joint waiters may stand in it in the
	// reverse of their order elsewhere, and would block each other for good.
	return c.order == LIFO
}

// starveAfter is how long a waiter may be overtaken, as in sync.Mutex.
const starveAfter = time.Millisecond

// serveUnfair wakes the head to compete with arrivals, one competitor at a
// time: it lowers the waiting flag, so releases stay off the lock meanwhile.
// A head that has waited too long is handed its permits instead.
func (c *core) serveUnfair(out *wakes) {
	for {
		w := c.firstServable()
		if w == nil {
			c.starving = false
			return
		}
		byHand := c.starving || w.joint != nil || w.ticket != nil
		switch {
		case byHand && w.joint != nil:
			c.meetJoint(w, out)
		case byHand && c.takeFlagged(w.n):
			c.finish(w, granted, out)
			next := c.firstServable()
			c.starving = c.starving && next != nil && next.overdue()
			continue
		case byHand:
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

func (c *core) firstServable() *waiter {
	for w := c.queue.head; w != nil; {
		next := w.next
		if w.joint != nil && w.joint.decided() {
			c.dequeue(w)
		} else if !w.parked {
			return w
		}
		w = next
	}
	return nil
}
