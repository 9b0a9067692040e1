package sema

import (
	"context"
	"sync"
	"time"
)

// A waiter is one place in a queue. Its owner parks on token; every other
// field is guarded by the mutex of the core it stands in, except that the
// owner may read them after a final status.
//
// n, done and follows do not change while it is queued.
//
// Tokens that are not final are sent with the mutex held, the final one after
// it was released: so the final one is the last, and once it is received the
// waiter is its owner's alone and may be reused.
type waiter struct {
	next, prev *waiter
	n          uint64
	token      chan status
	done       <-chan struct{} // the context's, to find waiters that share one
	joint      *joint          // set if this is one place of a joint waiter
	ticket     *Ticket         // set if no goroutine parks and a channel is closed instead
	since      uint32          // ticks at arrival, kept for Unfair
	status     status          // queued from enqueue to dequeue
	follows    bool            // joined when another waiter watched the context already
	promoted   bool            // follows, but was notified to watch
	parked     bool            // cannot be served at this capacity
}

// tokensAtMost is how many tokens can be on their way to one waiter:
// watchDone, competeNow and the final status.
const tokensAtMost = 3

var waiterPool = sync.Pool{New: func() any { return freshWaiter() }}

func freshWaiter() *waiter { return &waiter{token: make(chan status, tokensAtMost)} }

func newWaiter(n uint64, done <-chan struct{}) *waiter {
	var w *waiter
	if inBubble() {
		w = freshWaiter()
	} else {
		w = waiterPool.Get().(*waiter)
	}
	w.n, w.done = n, done
	return w
}

// recycle takes back a waiter that is off the queue and has no token to come.
func recycle(w *waiter) {
	if inBubble() {
		return
	}
	w.done = nil
	w.follows, w.promoted = false, false
	waiterPool.Put(w)
}

// overdue reports whether w has been overtaken for long enough.
func (w *waiter) overdue() bool {
	return ticks()-w.since > uint32(starveAfter/tick)
}

// tick is the unit of waiter.since: 32 bits of it wrap after three days, and
// a wrap only makes a waiter look young for another starveAfter.
const tick = 1 << 16 * time.Nanosecond

var epoch = time.Now()

func ticks() uint32 { return uint32(time.Since(epoch) / tick) }

// park waits for the final status on w, at most until ctx ends or, if limit is
// positive, for limit. It gives w up.
func (c *core) park(ctx context.Context, w *waiter, limit time.Duration) status {
	done := w.done
	watched := done
	if w.follows {
		watched = nil
	}
	var expired <-chan time.Time
	if limit > 0 {
		timer := newTimer(limit)
		defer recycleTimer(timer)
		expired = timer.C
	}
	for {
		var v status
		if watched == nil && expired == nil {
			v = <-w.token // half the price of a select
		} else {
			select {
			case v = <-w.token:
			case <-watched:
				return c.leave(ctx, w, cancelled)
			case <-expired:
				return c.leave(ctx, w, timedOut)
			}
		}
		switch v {
		case watchDone:
			watched = done
			continue
		case competeNow:
			if !c.compete(w) {
				continue
			}
			v = granted
		}
		n := w.n
		recycle(w)
		if v == granted && done != nil && ctx.Err() != nil {
			c.give(n) // a done context never acquires
			c.counted(cancelled)
			return cancelled
		}
		return v
	}
}

// leave takes w off the queue because its context ended or its time is up. If a
// status was faster, a grant is returned, unless only the wait limit
// passed: then it is welcome.
func (c *core) leave(ctx context.Context, w *waiter, why status) status {
	c.mu.Lock()
	if w.status == queued {
		var out wakes
		if why == cancelled && c.queue.watcher == w {
			c.cancelFollowers(&out)
		}
		c.dequeue(w)
		c.tally(why)
		c.settleInto(&out)
		c.unlock(out)
		w.drainTokens()
		recycle(w)
		return why
	}
	c.mu.Unlock()
	v := w.finalToken()
	n := w.n
	recycle(w)
	if v != granted {
		return why
	}
	if why == timedOut && ctx.Err() == nil {
		return granted
	}
	c.give(n)
	c.counted(cancelled)
	return cancelled
}

// cancelFollowers takes all that follow the watcher, whose context ended, off the queue.
func (c *core) cancelFollowers(out *wakes) {
	for w := c.queue.head; w != nil && c.queue.followers > 0; {
		next := w.next
		if w.following() {
			c.finish(w, cancelled, out)
		}
		w = next
	}
}

// compete is a woken waiter's try to take its permits from under the arrivals.
// If it fails w stays queued, in its place.
func (c *core) compete(w *waiter) bool {
	c.mu.Lock()
	if w.status != queued { // its status is on the way
		c.mu.Unlock()
		return false
	}
	c.competitor = nil
	won := c.debt == 0 && c.takeFlagged(w.n)
	if won {
		c.dequeue(w)
	}
	c.unlock(c.settle())
	if won {
		w.drainTokens()
	}
	return won
}

// finalToken receives until the final status, which is certain to come.
func (w *waiter) finalToken() status {
	for {
		if v := <-w.token; v != watchDone && v != competeNow {
			return v
		}
	}
}

// drainTokens empties the channel of a waiter that left before its status.
// What could be there was sent under the mutex, so it is there by now.
func (w *waiter) drainTokens() {
	for {
		select {
		case <-w.token:
		default:
			return
		}
	}
}
