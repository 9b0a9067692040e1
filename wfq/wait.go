package wfq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/bubble"
	"github.com/sema-go/sema/internal/list"
)

// A waiter is a caller in the queue of its class. The mutex of the Queue guards it, until it
// is woken. From then on only its owner uses it, and may put it into a pool.
type waiter struct {
	class  *class
	n      int64
	level  int   // tier at which it is served: that of its class, or a higher one that it inherits
	since  int64 // when it was queued, in ns
	status status
	queued bool // was in the queue
	err    error
	node   list.Node[*waiter]
	wake   chan struct{} // receives once, after the status has become final
	next   *waiter       // in wakes
	pooled bool          // fixed; not created in a testing/synctest bubble
}

var waiterPool = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1), pooled: true} }}

func newWaiter(c *class, n int64) *waiter {
	if bubble.Inside() {
		return &waiter{class: c, n: n, wake: make(chan struct{}, 1)}
	}
	w := waiterPool.Get().(*waiter)
	w.class, w.n = c, n
	return w
}

// recycle puts w into the pool. It must not be queued or about to be woken, and no queue may
// have it as a dependent, see inherit.
func recycle(w *waiter) {
	if w.pooled {
		*w = waiter{wake: w.wake, pooled: true}
		waiterPool.Put(w)
	}
}

// wakes are waiters in the order of their decisions, linked through next.
type wakes struct{ first, last *waiter }

func (o *wakes) add(w *waiter) {
	if o.first == nil {
		o.first = w
	} else {
		o.last.next = w
	}
	o.last = w
}

// A status is the state of a waiter.
type status uint8

const (
	pending status = iota
	waiting        // in the queue
	granted
	rejected // err has the reason
)

// A mode is what a request may do if its permits are not granted at once.
type mode uint8

const (
	mayQueue       mode = iota // queue a waiter
	mayNotQueueYet             // return errWouldQueue if a waiter could be queued
	mayNotWait                 // fail
)

// errWouldQueue is the result of a request that was not queued yet. It is not counted.
var errWouldQueue = errors.New("would be queued")

// request takes n permits of the queue, or returns why it cannot. It returns a waiter if
// it was queued, which then has to park for at most limit; 0: no limit.
func (c *class) request(n int64, may mode) (queued *waiter, limit time.Duration, err error) {
	q := c.q
	w := newWaiter(c, n) // likely needed, and not allocated under the mutex
	q.lock()
	defer q.unlock()
	limit = c.maxWaitLocked()
	w.level = c.share.Tier
	err = c.tryLocked(w)
	if err == sema.ErrFull && may != mayNotWait {
		if may == mayNotQueueYet {
			if _, ok := c.roomLocked(w); ok {
				recycle(w)
				return nil, limit, errWouldQueue
			}
		}
		if err = c.enqueueLocked(w); err == nil {
			return w, limit, nil
		}
	}
	if err != nil {
		c.countLocked(err, false)
	}
	recycle(w)
	return nil, limit, err
}

// tryLocked serves w if the queue would serve it before all others, or returns why not.
// ErrFull is not counted, since the caller may wait.
func (c *class) tryLocked(w *waiter) error {
	q := c.q
	if err := q.phaseErrorLocked(); err != nil {
		return err
	}
	if q.tooLargeLocked(w) {
		return sema.ErrTooLarge
	}
	if w.n > q.free || c.inUse.Load()+w.n > c.limit.Load() {
		return sema.ErrFull
	}
	if q.waiters == 0 {
		c.integrateLocked()
		q.takeLocked(w)
		return nil
	}
	// Others wait, but it may be the turn of w: others are at the limit of their class,
	// or of a lower tier. The queue decides.
	q.pushLocked(w)
	q.dispatchLocked()
	if w.status == waiting {
		q.removeLocked(w)
		w.status = pending
	}
	if w.status != granted {
		return sema.ErrFull
	}
	return nil
}

// roomLocked reports whether w may wait, and which waiter has to leave for it; nil: none.
func (c *class) roomLocked(w *waiter) (displaced *waiter, ok bool) {
	q := c.q
	if c.fullLocked() {
		return nil, false
	}
	if most := q.settings.MaxWaiters; most != 0 && q.waiters >= max(0, most) {
		displaced = q.displacedLocked(w)
		return displaced, displaced != nil
	}
	return nil, true
}

// fullLocked reports whether as many callers of the class wait as its share allows.
func (c *class) fullLocked() bool {
	most := c.share.MaxWaiters
	return most != 0 && c.waiters >= max(0, most)
}

// queueFullLocked returns why a caller may not wait.
func (c *class) queueFullLocked() error {
	if c.fullLocked() {
		return &detailed{sema.ErrQueueFull, fmt.Sprintf("at most %d of the class may wait", max(0, c.share.MaxWaiters))}
	}
	return sema.ErrQueueFull
}

// enqueueLocked makes w wait, or returns why it may not.
func (c *class) enqueueLocked(w *waiter) error {
	q := c.q
	displaced, ok := c.roomLocked(w)
	if !ok {
		return c.queueFullLocked()
	}
	if displaced != nil {
		why := errDisplacedByTier
		if displaced.class.tier.level == w.level {
			why = errDisplacedByLength
		}
		q.rejectLocked(displaced, why)
	}
	w.queued = true
	q.pushLocked(w)
	c.counts.Waited++
	q.counts.Waited++
	return nil
}

// pushLocked adds w to the queue of its class.
func (q *Queue) pushLocked(w *waiter) {
	c := w.class
	if q.waiters == 0 {
		q.busy.startLocked(q)
	}
	w.status, w.since, w.node.Of = waiting, q.now, w
	c.queue.PushBack(&w.node)
	q.waiters++
	q.arrivals += w.since
	c.arrivals += w.since
	c.waiters++
	c.queued += w.n
	c.squares += float64(w.n) * float64(w.n)
	c.tier.queued += w.n
	if c.waiters == 1 {
		c.pace.startLocked(q.now)
		q.backlog.PushBack(&c.backlogged)
	}
	c.relistLocked()
	c.placeLocked()
}

// removeLocked removes w from the queue.
func (q *Queue) removeLocked(w *waiter) {
	c := w.class
	c.integrateLocked() // before the busy time stops
	if waited := time.Duration(q.now - w.since); w.queued {
		c.counts.WaitTime += waited
		q.counts.WaitTime += waited
	}
	if w.node.In() {
		c.queue.Remove(&w.node)
	} else {
		c.urgent = slices.DeleteFunc(c.urgent, func(other *waiter) bool { return other == w })
	}
	q.waiters--
	q.arrivals -= w.since
	c.arrivals -= w.since
	c.waiters--
	c.queued -= w.n
	c.squares -= float64(w.n) * float64(w.n)
	c.tier.queued -= w.n
	if c.waiters == 0 {
		c.pace.stopLocked(q.now)
		c.squares = 0 // without rounding errors
		q.backlog.Remove(&c.backlogged)
		c.overload.emptied()
	}
	if q.waiters == 0 {
		q.busy.stopLocked(q)
	}
	c.relistLocked()
	c.relevelLocked()
	c.placeLocked()
}

// takeLocked gives w its permits. It is not in the queue, and its class is integrated.
func (q *Queue) takeLocked(w *waiter) {
	c := w.class
	q.free -= w.n
	c.inUse.Add(w.n)
	if q.under != nil {
		c.asking += w.n
	}
	w.status = granted
}

// finishLocked ends the wait of w, which is no longer in the queue. A waiter that has only
// been there for a try is not woken: it did not park.
func (w *waiter) finishLocked(v status, err error) {
	w.status, w.err = v, err
	if w.queued {
		w.class.q.decided.add(w)
	}
}

// rejectLocked ends the wait of w with an error.
func (q *Queue) rejectLocked(w *waiter, err error) {
	q.removeLocked(w)
	w.class.countLocked(err, true)
	w.finishLocked(rejected, err)
}

// rejectWhereLocked ends the waits of all waiters that match.
func (q *Queue) rejectWhereLocked(err error, match func(*waiter) bool) {
	for c := range q.backlog.All {
		c.rejectWhereLocked(err, match)
	}
}

// rejectWhereLocked ends the waits of all waiters of the class that match.
func (c *class) rejectWhereLocked(err error, match func(*waiter) bool) {
	var matching []*waiter
	for w := range c.allLocked {
		if match(w) {
			matching = append(matching, w)
		}
	}
	for _, w := range matching {
		c.q.rejectLocked(w, err)
	}
}

// allLocked yields the waiters of a class.
func (c *class) allLocked(yield func(*waiter) bool) {
	for _, w := range c.urgent {
		if !yield(w) {
			return
		}
	}
	c.queue.All(yield)
}

// oldestLocked returns the waiter of a class that arrived first.
func (c *class) oldestLocked() *waiter {
	var oldest *waiter
	if first := c.queue.First(); first != nil {
		oldest = first.Of
	}
	for _, w := range c.urgent {
		if oldest == nil || w.since < oldest.since {
			oldest = w
		}
	}
	return oldest
}

// maxWaitLocked returns the shorter of the bounds of the queue and the class; 0: none.
func (c *class) maxWaitLocked() time.Duration {
	own := c.share.MaxWait
	switch all := c.q.settings.MaxWait; {
	case own == 0:
		return all
	case all == 0:
		return own
	default:
		return min(own, all)
	}
}

// park waits until w is decided, its context ends or the limit has passed.
func (w *waiter) park(ctx context.Context, limit time.Duration) error {
	defer w.inherit(ctx)()
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-w.wake:
		return w.woken(ctx)
	case <-ctx.Done():
		return w.cancel(ctx)
	case <-expired:
		if ctx.Err() != nil { // in the same instant
			return w.cancel(ctx)
		}
		return w.giveUp(&detailed{sema.ErrTimeout, limit.String()}, true)
	}
}

// woken returns the result of a wait that was decided. A done context never acquires.
func (w *waiter) woken(ctx context.Context) error {
	if w.err != nil || ctx.Err() == nil {
		return w.err
	}
	return w.cancel(ctx)
}

// cancel ends the wait of a caller whose context has ended.
func (w *waiter) cancel(ctx context.Context) error {
	return w.giveUp(cancelled{context.Cause(ctx)}, false)
}

// giveUp ends the wait of a caller whose context has ended or whose time limit has passed.
// What it was granted meanwhile is returned, or kept if only the time limit has passed.
func (w *waiter) giveUp(why error, timedOut bool) error {
	c, q := w.class, w.class.q
	q.lock()
	defer q.unlock()
	switch w.status {
	case rejected:
		return w.err // counted when it was rejected
	case granted:
		if timedOut {
			return nil
		}
		c.integrateLocked()
		if q.under != nil {
			c.asking -= w.n
		}
		c.inUse.Add(-w.n)
		q.free += w.n
		c.placeLocked()
	default:
		if !timedOut && !waitedTooLong(why) {
			c.leftLocked(w.n)
		}
		q.removeLocked(w)
		w.status = pending
	}
	c.countLocked(why, true)
	return why
}
