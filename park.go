package sema

import (
	"context"
	"sync"
	"time"

	"github.com/sema-go/sema/internal/monotonic"
)

// A waiter is an entry in a queue. Its owner parks on token. The mutex of the core
// guards every other field, except that the owner may read them after a final
// status.
//
// n, done and follows do not change while the waiter is queued.
//
// Tokens that are not final are sent with the mutex held. The final token is sent
// after the mutex is unlocked, so it is the last. Once it is received, only the
// owner uses the waiter, which may then be reused.
type waiter struct {
	next, prev *waiter
	n          uint64
	token      chan status
	done       <-chan struct{} // the context's; identifies waiters that share a context
	joint      *joint          // set if this is an entry of a joint waiter
	ticket     *Ticket         // set for a Ticket: no goroutine parks, and a channel is closed instead
	since      uint32          // ticks at arrival, for Unfair only
	status     status          // queued while in the queue
	follows    bool            // another waiter watched the context when this one joined
	promoted   bool            // follows is set, but the waiter was notified to watch
	parked     bool            // cannot be served at this capacity
}

// maxTokens is the number of tokens that can be in flight to one waiter: watchDone,
// competeNow and the final status.
const maxTokens = 3

var waiterPool = sync.Pool{New: func() any { return allocWaiter() }}

func allocWaiter() *waiter { return &waiter{token: make(chan status, maxTokens)} }

func newWaiter(n uint64, done <-chan struct{}) *waiter {
	var w *waiter
	if inBubble() {
		w = allocWaiter()
	} else {
		w = waiterPool.Get().(*waiter)
	}
	w.n, w.done = n, done
	return w
}

// recycle puts w into the pool. w must not be queued, and no token may be in flight
// to it.
func recycle(w *waiter) {
	if inBubble() {
		return
	}
	w.done = nil
	w.follows, w.promoted = false, false
	waiterPool.Put(w)
}

// overdue reports whether w has been overtaken for longer than starveAfter.
func (w *waiter) overdue() bool {
	return ticks()-w.since > uint32(starveAfter/tick)
}

// tick is the unit of waiter.since. 32 bits of it wrap after three days. A wrap only
// makes a waiter appear new for another starveAfter.
const tick = 1 << 16 * time.Nanosecond

func ticks() uint32 { return uint32(monotonic.Since() / tick) }

// park waits for the final status of w, until ctx ends or, if limit is positive,
// for at most limit. The caller must not use w afterwards.
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
			v = <-w.token // costs half as much as a select
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
			c.count(cancelled)
			return cancelled
		}
		return v
	}
}

// leave removes w from the queue because its context ended or its time limit
// passed. If a final status came first and it is a grant, the permits are returned;
// if only the time limit passed, the grant is kept.
func (c *core) leave(ctx context.Context, w *waiter, why status) status {
	c.mu.Lock()
	if w.status == queued {
		var out wakes
		if why == cancelled && c.queue.watcher == w {
			c.cancelFollowersLocked(&out)
		}
		c.dequeueLocked(w)
		c.countLocked(why)
		c.settleIntoLocked(&out)
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
	c.count(cancelled)
	return cancelled
}

// cancelFollowersLocked removes all followers of the watcher, whose context ended,
// from the queue.
func (c *core) cancelFollowersLocked(out *wakes) {
	for w := c.queue.head; w != nil && c.queue.followers > 0; {
		next := w.next
		if w.following() {
			c.finishLocked(w, cancelled, out)
		}
		w = next
	}
}

// compete tries to take the permits of a woken waiter in competition with arrivals,
// and reports whether it did. If it fails, w keeps its position in the queue.
func (c *core) compete(w *waiter) bool {
	c.mu.Lock()
	if w.status != queued { // its final status is in flight
		c.mu.Unlock()
		return false
	}
	c.competitor = nil
	won := c.debt == 0 && c.takeFlaggedLocked(w.n)
	if won {
		c.dequeueLocked(w)
	}
	c.unlock(c.settleLocked())
	if won {
		w.drainTokens()
	}
	return won
}

// finalToken receives tokens until the final status, which is certain to arrive.
func (w *waiter) finalToken() status {
	for {
		if v := <-w.token; v != watchDone && v != competeNow {
			return v
		}
	}
}

// drainTokens empties the channel of a waiter that left the queue before its final
// status. Its tokens were sent under the mutex, so they have arrived.
func (w *waiter) drainTokens() {
	for {
		select {
		case <-w.token:
		default:
			return
		}
	}
}
