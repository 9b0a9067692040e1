package sema

import (
	"context"
	"fmt"
	"time"
)

// A Counter is the semaphore of the textbooks: a number that Wait (P) lowers,
// waiting while it is too small, and Post (V) raises. Unlike a [Semaphore] it
// issues no permits: any goroutine may post, whichever waited. NewCounter(0, max)
// is a signal. Create it with [NewCounter].
//
// To bound concurrency use a Semaphore: nothing here ties a post to a wait.
type Counter struct {
	core    core // capacity: the maximum
	name    string
	maxWait time.Duration
	monitor *Monitor // nil unless observed or diagnosed
}

// NewCounter creates a counter that starts at initial and never exceeds max. It
// panics unless 0 ≤ initial ≤ max and 1 ≤ max ≤ [MaxCapacity].
//
// Observers receive [EventQueued], and [EventAcquired] or why there is none for each
// wait, [EventReleased] for each post, and [EventOverReleased] for rejected ones. Waits
// are diagnosed: profiles, [Contention]. What a counter is lowered by has no holder, so
// that the other diagnostics, ParkOversize and Backed do not apply.
func NewCounter(initial, max int64, opts ...Option) *Counter {
	if initial < 0 || max < 1 || initial > max || max > MaxCapacity {
		panic(fmt.Sprintf("sema: NewCounter(%d, %d): want 0 ≤ initial ≤ max and 1 ≤ max ≤ %d", initial, max, MaxCapacity))
	}
	conf := newConfig(opts)
	c := &Counter{name: conf.Name, maxWait: conf.MaxWait}
	c.core.order = conf.Order
	c.core.keepsLeft = true
	c.core.queueLimit = queueLimit(conf.MaxWaiters)
	c.core.capacity = uint64(max)
	c.core.word.Store(uint64(initial))
	if c.monitor = conf.newMonitor(); c.monitor != nil {
		c.monitor.core, c.monitor.signals = &c.core, true
	}
	return c
}

// Name returns the name that the option [Name] gave it.
func (c *Counter) Name() string { return c.name }

// Wait lowers the counter by n, waiting in turn until it is at least n. It
// fails with the context's cause, ErrTooLarge if n exceeds the maximum,
// ErrQueueFull, ErrTimeout (options MaxWaiters, MaxWait), ErrInvalid, or ErrClosed: on
// a closed counter it takes n if that much is left, and does not wait. Wait of 0 does
// not wait.
func (c *Counter) Wait(ctx context.Context, n int64) error {
	const op = "wait"
	watch := c.monitor.begin(ctx, n)
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
			c.core.reject()
		}
		return watch.Failed(c.fault(op, n, sentinelOf(v), ""))
	}
}

// WaitUpTo waits like Wait until the counter is at least least, lowers it by as
// much as there is, most at most, and returns by how much. It is for consumers
// that work in batches. Of what other waiters wait for it takes no more than
// least. On a closed counter it does not wait, and returns what is left even if
// that is less than least; ErrClosed follows when nothing is.
//
// It fails like Wait, and with ErrInvalid unless 0 ≤ least ≤ most. A least of 0
// does not wait.
func (c *Counter) WaitUpTo(ctx context.Context, least, most int64) (int64, error) {
	const op = "wait up to"
	watch := c.monitor.begin(ctx, least)
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
		if got = c.takeLeft(most); got > 0 {
			break
		}
		c.core.reject()
		return 0, watch.Failed(c.fault(op, least, ErrClosed, ""))
	case cancelled:
		return 0, watch.Failed(context.Cause(ctx))
	default:
		return 0, watch.Failed(c.fault(op, least, sentinelOf(v), ""))
	}
	watch.lowered(got)
	return got, nil
}

// TryWait lowers the counter by n if it can at once, and returns whether it did.
func (c *Counter) TryWait(n int64) bool {
	if n < 0 || n > MaxCapacity {
		return false
	}
	v := granted
	if n > 0 {
		v = c.core.tryTake(uint64(n))
	} else {
		v = c.core.closedFor()
	}
	if v == closed {
		c.core.reject()
	}
	if c.monitor != nil {
		watch := c.monitor.begin(context.Background(), n)
		if v == granted {
			watch.lowered(n)
		} else {
			watch.Failed(c.fault("try", n, sentinelOf(v), ""))
		}
	}
	return v == granted
}

// take lowers the counter by n in turn, waiting for it; for 0 it only looks
// whether the counter is open.
func (c *Counter) take(ctx context.Context, watch *Wait, n int64) status {
	if n == 0 {
		return c.core.closedFor()
	}
	if c.monitor != nil { // reports first, and queues afterwards
		if v := c.core.tryOrWait(uint64(n)); v != pending {
			return v
		}
		watch.Queued()
		if ctx.Err() != nil { // it may have ended while observers ran
			return cancelled
		}
	}
	w, v := c.core.enter(uint64(n), ctx.Done())
	if v == pending {
		v = c.core.park(ctx, w, c.maxWait)
	}
	return v
}

// takeLeft takes from a closed counter as much as is left, most at most.
func (c *Counter) takeLeft(most int64) int64 {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return int64(c.core.takeUpTo(uint64(most)))
}

// Post raises the counter by n and wakes the waiters that this serves. Any goroutine
// may post, at any time. More than the maximum is rejected with ErrOverRelease, and
// a negative n with ErrInvalid; both change nothing.
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
				core.unlock(core.settle())
			}
			c.monitor.Report(Event{Kind: EventReleased, Weight: n})
			return nil
		}
	}
}

// Value returns the counter now.
func (c *Counter) Value() int64 { return int64(c.core.free()) }

// Max returns the maximum it was created with.
func (c *Counter) Max() int64 { return int64(c.core.capacity) }

// Waiters returns how many callers wait now.
func (c *Counter) Waiters() int { return c.core.waiters() }

// Stats returns one exact snapshot. Capacity is the maximum and Free the value. InUse
// is 0, for nothing is held, and Acquired too: waits that need not be queued are not
// counted.
func (c *Counter) Stats() Stats {
	st := c.core.stats()
	st.InUse = 0
	return st
}

// Close ends waiting: waiters that can be served with what the counter has are
// served in turn, the others get ErrClosed. What is left can still be taken, by
// [Counter.Wait], [Counter.WaitUpTo] and [Counter.TryWait], until the counter is
// 0; then they fail with ErrClosed. Posts still count, and can be taken
// likewise. It always returns nil.
func (c *Counter) Close() error {
	c.core.mu.Lock()
	c.core.unlock(c.core.shutServing())
	return nil
}

// shutServing closes the core for good, with mu held, and ends every wait: with
// a grant where what is free suffices.
func (c *core) shutServing() wakes {
	var out wakes
	c.phase = shut
	c.raiseFlags() // from here on only the holder of mu takes
	for w := c.queue.head; w != nil; {
		next := w.next
		v := closed
		if c.takeFlagged(w.n) {
			v = granted
		}
		c.finish(w, v, &out)
		w = next
	}
	c.settleInto(&out)
	return out
}

// takeUnclaimed takes as much as is free and no waiter has a claim to, n at
// most.
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
	if c.mustQueue() {
		return 0
	}
	return c.takeUpTo(n)
}

func (c *Counter) check(ctx context.Context, op string, n int64) error {
	switch {
	case c.core.capacity == 0:
		panic("sema: " + op + " on a zero Counter; make it with sema.NewCounter")
	case ctx == nil:
		return c.fault(op, n, ErrInvalid, nilContext)
	case n < 0:
		return c.fault(op, n, ErrInvalid, "negative weight")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n > c.Max():
		c.core.reject()
		return c.fault(op, n, ErrTooLarge, "")
	}
	return nil
}

func (c *Counter) fault(op string, n int64, err error, detail string) error {
	if err == ErrTimeout {
		detail = c.maxWait.String()
	}
	return &Error{Op: op, Name: c.name, Weight: n, Capacity: c.Max(), Waiters: c.Waiters(), Err: err, Detail: detail}
}
