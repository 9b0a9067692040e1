package sema

import (
	"context"
	"sync"
	"time"

	"github.com/sema-go/sema/internal/bubble"
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

var waiterPool = sync.Pool{New: func() any { return allocWaiter(maxTokens) }}

func allocWaiter(tokens int) *waiter { return &waiter{token: make(chan status, tokens)} }

// bubbled reports whether w was created in a testing/synctest bubble: only its channel
// has room for a further token. (With another field, a waiter would not fit in a cache
// line.)
func (w *waiter) bubbled() bool { return cap(w.token) > maxTokens }

func newWaiter(n uint64, done <-chan struct{}) *waiter {
	var w *waiter
	if bubble.Inside() {
		w = allocWaiter(maxTokens + 1)
	} else {
		w = waiterPool.Get().(*waiter)
	}
	w.n, w.done = n, done
	return w
}

// recycle puts w into the pool, unless it belongs to a bubble. w must not be queued, and
// no token may be in flight to it. Only a test reads w, for which [bubble.Inside] would read the
// clock a second time. For others that read would wait, as in [core.finish].
func recycle(w *waiter) {
	if bubble.Possible() && w.bubbled() {
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
//
// Semaphore.Acquire parks in the same way without a call of park.
func (c *core) park(ctx context.Context, w *waiter, limit time.Duration) status {
	if limit > 0 {
		return c.parkUpTo(ctx, w, limit)
	}
	n := w.n
	if w.follows || w.done == nil {
		return c.received(ctx, w, n, <-w.token) // costs half as much as a select
	}
	select {
	case v := <-w.token:
		return c.received(ctx, w, n, v)
	case <-w.done:
		return c.leave(ctx, w, cancelled)
	}
}

// received returns the status of a wait for n permits without a limit, after its waiter
// received v. It waits on if v is not final.
func (c *core) received(ctx context.Context, w *waiter, n uint64, v status) status {
	if v == watchDone || v == competeNow {
		return c.parkAgain(ctx, w, n, v)
	}
	return c.finish(ctx, w, n, v)
}

// parkAgain continues a wait for n permits without a limit after v, which is not final.
func (c *core) parkAgain(ctx context.Context, w *waiter, n uint64, v status) status {
	watches := w.done != nil && !w.follows
	for {
		switch v {
		case watchDone:
			watches = true
		case competeNow:
			if c.compete(w) {
				return c.finish(ctx, w, n, granted)
			}
		default:
			return c.finish(ctx, w, n, v)
		}
		if !watches {
			v = <-w.token
			continue
		}
		select {
		case v = <-w.token:
		case <-w.done:
			return c.leave(ctx, w, cancelled)
		}
	}
}

// parkUpTo waits like park, for at most limit, which is positive.
func (c *core) parkUpTo(ctx context.Context, w *waiter, limit time.Duration) status {
	timer := newTimer(limit)
	defer recycleTimer(timer)
	n, watched := w.n, w.done
	if w.follows {
		watched = nil
	}
	for {
		var v status
		select {
		case v = <-w.token:
		case <-watched:
			return c.leave(ctx, w, cancelled)
		case <-timer.C:
			return c.leave(ctx, w, timedOut)
		}
		switch v {
		case watchDone:
			watched = w.done
		case competeNow:
			if c.compete(w) {
				return c.finish(ctx, w, n, granted)
			}
		default:
			return c.finish(ctx, w, n, v)
		}
	}
}

// finish recycles w, whose wait for n permits ended with v, and returns the status of the
// wait. It does not read w, which the core that granted the permits has just written: a
// read would wait until the cache line is here.
func (c *core) finish(ctx context.Context, w *waiter, n uint64, v status) status {
	recycle(w)
	if v == granted && ctx.Err() != nil {
		c.give(n) // a done context never acquires
		c.count(cancelled)
		return cancelled
	}
	return v
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
