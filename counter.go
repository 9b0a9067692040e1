package sema

import (
	"context"
	"fmt"
	"time"
)

// A Counter is the semaphore of the textbooks: a number that Wait (P) lowers, waiting
// while it is too small, and Post (V) raises. Unlike a [Semaphore] it issues no
// permits: any goroutine may post, regardless of which one waited. NewCounter(0, max)
// is a signal. Create one with [NewCounter].
//
// To bound concurrency use a Semaphore: a Counter does not tie a post to a wait.
type Counter struct {
	core    core // core.capacity is the maximum
	name    string
	maxWait time.Duration // 0: no bound
	monitor *Monitor      // nil unless observed or diagnosed
}

// NewCounter returns a counter that starts at initial and never exceeds max. It
// panics unless 0 ≤ initial ≤ max and 1 ≤ max ≤ [MaxCapacity].
//
// For each wait observers receive [EventQueued] if it is queued, and then
// [EventAcquired] or the event of the failure. They receive [EventReleased] for each
// post, and [EventOverReleased] for each rejected post. Diagnosed waits appear in the
// profiles and in [Contention]. A Counter has no holders, so the other diagnostics,
// ParkOversize and Backed do not apply.
func NewCounter(initial, max int64, opts ...Option) *Counter {
	if initial < 0 || max < 1 || initial > max || max > MaxCapacity {
		panic(fmt.Sprintf("sema: NewCounter(%d, %d): want 0 ≤ initial ≤ max and 1 ≤ max ≤ %d", initial, max, MaxCapacity))
	}
	conf := newConfig(opts)
	c := &Counter{name: conf.Name, maxWait: conf.MaxWait}
	c.core.order = conf.Order
	c.core.takeAfterClose = true
	c.core.queueLimit = queueLimit(conf.MaxWaiters)
	c.core.capacity = uint64(max)
	c.core.word.Store(uint64(initial))
	if c.monitor = conf.newMonitor(); c.monitor != nil {
		c.monitor.core, c.monitor.signals = &c.core, true
	}
	return c
}

// Name returns the name that the option [Name] set, or "".
func (c *Counter) Name() string { return c.name }

// Wait lowers the counter by n. It waits in the queue while the value is less than n.
// It fails with the context's cause, ErrTooLarge if n exceeds the maximum, ErrQueueFull
// or ErrTimeout (options MaxWaiters and MaxWait), ErrInvalid, or ErrClosed. On a closed
// counter it does not wait: it takes n if that much is left, and fails with ErrClosed
// otherwise. Wait of 0 does not wait.
func (c *Counter) Wait(ctx context.Context, n int64) error {
	const op = "wait"
	watch := c.monitor.BeginTry(ctx, n)
	if err := c.check(ctx, op, n); err != nil {
		return watch.Failed(err)
	}
	switch v := c.take(ctx, &watch, n); v {
	case granted:
		watch.lowered(n)
		return nil
	case cancelled:
		return watch.Failed(context.Cause(ctx))
	default:
		if v == closed {
			c.core.countRejected()
		}
		return watch.Failed(c.fault(op, n, sentinelOf(v), ""))
	}
}

// WaitUpTo waits like Wait until the value of the counter reaches least. Then it lowers
// the counter by as much as is available, up to most, and returns that amount. It is
// for consumers that work in batches. If others wait in a fair queue, it takes no more
// than least. On a closed counter it does not wait, and takes what is left even if that
// is less than least. It fails with ErrClosed once nothing is left.
//
// It fails like Wait, and with ErrInvalid unless 0 ≤ least ≤ most. A least of 0
// does not wait.
func (c *Counter) WaitUpTo(ctx context.Context, least, most int64) (int64, error) {
	const op = "wait up to"
	watch := c.monitor.BeginTry(ctx, least)
	if err := c.check(ctx, op, least); err != nil {
		return 0, watch.Failed(err)
	}
	if most < least {
		return 0, watch.Failed(c.fault(op, least, ErrInvalid, fmt.Sprintf("at least %d and at most %d", least, most)))
	}
	most = min(most, c.Max())
	v, got := c.take(ctx, &watch, least), int64(0)
	switch v {
	case granted:
		got = least + int64(c.core.takeUnclaimed(uint64(most-least)))
	case closed:
		if got = c.takeRemaining(most); got > 0 {
			break
		}
		c.core.countRejected()
		return 0, watch.Failed(c.fault(op, least, ErrClosed, ""))
	case cancelled:
		return 0, watch.Failed(context.Cause(ctx))
	default:
		return 0, watch.Failed(c.fault(op, least, sentinelOf(v), ""))
	}
	watch.lowered(got)
	return got, nil
}

// TryWait lowers the counter by n if that is possible without waiting, and reports
// whether it did.
func (c *Counter) TryWait(n int64) bool {
	if n < 0 || n > MaxCapacity {
		return false
	}
	v := granted
	if n > 0 {
		v = c.core.tryTake(uint64(n))
	} else {
		v = c.core.checkOpen()
	}
	if v == closed {
		c.core.countRejected()
	}
	if c.monitor != nil {
		watch := c.monitor.BeginTry(context.Background(), n)
		if v == granted {
			watch.lowered(n)
		} else {
			watch.Failed(c.fault("try", n, sentinelOf(v), ""))
		}
	}
	return v == granted
}

// take lowers the counter by n, waiting in the queue. If n is 0 it only checks
// whether the counter is open.
func (c *Counter) take(ctx context.Context, watch *Wait, n int64) status {
	if n == 0 {
		return c.core.checkOpen()
	}
	if c.monitor != nil { // reports before it queues
		if v := c.core.tryOrWait(uint64(n)); v != pending {
			return v
		}
		watch.Queued()
		if ctx.Err() != nil { // ctx may have ended while observers ran
			return cancelled
		}
	}
	w, v := c.core.enter(uint64(n), ctx.Done())
	if v == pending {
		v = c.core.park(ctx, w, c.maxWait)
	}
	return v
}

// takeRemaining takes as much as is left in a closed counter, up to most.
func (c *Counter) takeRemaining(most int64) int64 {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return int64(c.core.takeUpToLocked(uint64(most)))
}

// Post raises the counter by n and wakes the waiters that can then be served. Any
// goroutine may call it, at any time. A post that would exceed the maximum fails with
// ErrOverRelease, and a negative n with ErrInvalid; both change nothing.
func (c *Counter) Post(n int64) error {
	if n < 0 {
		return c.fault("post", n, ErrInvalid, "negative weight")
	}
	core := &c.core
	for {
		old := core.word.Load()
		if uint64(n) > core.capacity-old&freeMask { // capacity is fixed
			err := c.fault("post", n, ErrOverRelease, fmt.Sprintf("the counter is at %d", old&freeMask))
			c.monitor.Report(Event{Kind: EventOverReleased, Weight: n, Err: err})
			return err
		}
		if core.word.CompareAndSwap(old, old+uint64(n)) {
			if old >= slowFlag {
				core.mu.Lock()
				core.unlock(core.settleLocked())
			}
			if m := c.monitor; m != nil && m.samples == 0 {
				m.Report(Event{Kind: EventReleased, Weight: n})
			}
			return nil
		}
	}
}

// Value returns the current value of the counter.
func (c *Counter) Value() int64 { return int64(c.core.free()) }

// Max returns the maximum passed to [NewCounter].
func (c *Counter) Max() int64 { return int64(c.core.capacity) }

// Waiters returns the number of callers that wait now.
func (c *Counter) Waiters() int { return c.core.waiters() }

// Stats returns an exact snapshot. Capacity is the maximum and Free the value. InUse
// is 0, because nothing is held. Acquired is 0, because waits that are served without
// queueing are not counted.
func (c *Counter) Stats() Stats {
	st := c.core.stats()
	st.InUse = 0
	return st
}

// Close ends all waits: waiters that the current value can serve are served in queue
// order, the others get ErrClosed. Afterwards [Counter.Wait], [Counter.WaitUpTo] and
// [Counter.TryWait] can still take what is left, until the counter is 0; then they
// fail with ErrClosed. Posts still count and can be taken in the same way. Close
// always returns nil.
func (c *Counter) Close() error {
	c.core.mu.Lock()
	c.core.unlock(c.core.shutServingLocked())
	return nil
}

// shutServingLocked closes the core for good and ends every wait: with a grant where
// the free permits suffice.
func (c *core) shutServingLocked() wakes {
	var out wakes
	c.phase = shut
	c.raiseFlagsLocked() // from here on only the holder of mu takes permits
	for w := c.queue.head; w != nil; {
		next := w.next
		v := closed
		if c.takeFlaggedLocked(w.n) {
			v = granted
		}
		c.finishLocked(w, v, &out)
		w = next
	}
	c.settleIntoLocked(&out)
	return out
}

// takeUnclaimed takes as many permits as are free and not owed to a waiter, at most n.
func (c *core) takeUnclaimed(n uint64) uint64 {
	for {
		old := c.word.Load()
		if old >= slowFlag {
			break
		}
		got := min(old, n)
		if got == 0 || c.word.CompareAndSwap(old, old-got) {
			return got
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mustQueueLocked() {
		return 0
	}
	return c.takeUpToLocked(n)
}

func (c *Counter) check(ctx context.Context, op string, n int64) error {
	switch {
	case c.core.capacity == 0:
		panic("sema: " + op + " on a zero Counter; create it with sema.NewCounter")
	case ctx == nil:
		return c.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		return c.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n > c.Max():
		c.core.countRejected()
		return c.fault(op, n, ErrTooLarge, "")
	}
	return nil
}

func (c *Counter) fault(op string, n int64, err error, detail string) error {
	if err == ErrTimeout {
		detail = c.maxWait.String()
	}
	fault := &Error{Op: op, Name: c.name, Weight: n, Capacity: c.Max(), Waiters: c.Waiters(), Err: err, Detail: detail}
	switch err {
	case ErrOverRelease:
		fault.Advice = "post at most what was taken, or create the counter with a higher maximum"
	case ErrTooLarge:
		fault.Advice = "wait for less, or create the counter with a higher maximum"
	}
	return fault
}
