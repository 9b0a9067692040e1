package sema

import (
	"context"
	"fmt"
)

// A Counter is the semaphore of the textbooks: a number that Wait (P) lowers,
// waiting while it is too small, and Post (V) raises. Unlike a [Semaphore] it
// hands out no permits: anybody may post, whoever waited. NewCounter(0, max)
// is a signal. Make it with [NewCounter].
//
// To bound concurrency use a Semaphore: nothing here ties a post to a wait.
type Counter struct {
	core      core // capacity: the maximum
	name      string
	observers []Observer
}

// NewCounter makes a counter that starts at initial and never exceeds max.
// Of the options it heeds Name, MaxWaiters, the orders, and Observe, which is
// told of refused posts ([EventOverReleased]) only. It panics unless
// 0 ≤ initial ≤ max and 1 ≤ max ≤ [MaxCapacity].
func NewCounter(initial, max int64, opts ...Option) *Counter {
	if initial < 0 || max < 1 || initial > max || max > MaxCapacity {
		panic(fmt.Sprintf("sema: NewCounter(%d, %d): want 0 ≤ initial ≤ max and 1 ≤ max ≤ %d", initial, max, MaxCapacity))
	}
	conf := newConfig(opts)
	c := &Counter{name: conf.Name, observers: conf.reports.observers}
	c.core.order = conf.Order
	c.core.lineLimit = lineLimit(conf.MaxWaiters)
	c.core.capacity = uint64(max)
	c.core.word.Store(uint64(initial))
	return c
}

// Wait lowers the counter by n, waiting in turn until it is at least n. It
// fails with the context's cause, ErrTooLarge if n exceeds the maximum,
// ErrQueueFull, ErrInvalid, or ErrClosed: on a closed counter it takes n if that
// much is left, and does not wait. Wait of 0 does not wait.
func (c *Counter) Wait(ctx context.Context, n int64) error {
	const op = "wait"
	if err := c.check(ctx, op, n); err != nil {
		return err
	}
	switch v := c.take(ctx, n); v {
	case granted:
		return nil
	case cancelled:
		return context.Cause(ctx)
	case closed:
		if _, ok := c.takeLeft(n, n); ok {
			return nil
		}
		return c.fault(op, n, ErrClosed, "")
	default:
		return c.fault(op, n, sentinelOf(v), "")
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
	if err := c.check(ctx, op, least); err != nil {
		return 0, err
	}
	if most < least {
		return 0, c.fault(op, least, ErrInvalid, fmt.Sprintf("at least %d and at most %d", least, most))
	}
	most = min(most, c.Max())
	switch v := c.take(ctx, least); v {
	case granted:
		return least + int64(c.core.takeUnclaimed(uint64(most-least))), nil
	case cancelled:
		return 0, context.Cause(ctx)
	case closed:
		if got, ok := c.takeLeft(0, most); ok {
			return got, nil
		}
		return 0, c.fault(op, least, ErrClosed, "")
	default:
		return 0, c.fault(op, least, sentinelOf(v), "")
	}
}

// TryWait lowers the counter by n if it can at once, and says whether it did.
func (c *Counter) TryWait(n int64) bool {
	if n < 0 || n > MaxCapacity {
		return false
	}
	v := c.core.closedFor()
	if n > 0 {
		v = c.core.tryTake(uint64(n))
	}
	if v == closed {
		_, ok := c.takeLeft(n, n)
		return ok
	}
	return v == granted
}

// take lowers the counter by n in turn, waiting for it; for 0 it only looks
// whether the counter is open.
func (c *Counter) take(ctx context.Context, n int64) verdict {
	if n == 0 {
		return c.core.closedFor()
	}
	w, v := c.core.enter(uint64(n), ctx.Done())
	if v == pending {
		v = c.core.park(ctx, w, 0)
	}
	return v
}

// takeLeft takes from a closed counter as much as is left, most at most. It
// fails if nothing is left, or less than least.
func (c *Counter) takeLeft(least, most int64) (got int64, ok bool) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if left := c.core.free(); left == 0 || left < uint64(least) {
		return 0, false
	}
	return int64(c.core.takeUpTo(uint64(most))), true
}

// Post raises the counter by n and wakes whom that lets through. Anybody may
// post, at any time. More than the maximum is refused with ErrOverRelease, and
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
			for _, o := range c.observers {
				o.Observe(Event{Kind: EventOverReleased, Name: c.name, Weight: n, Err: err})
			}
			return err
		}
		if core.word.CompareAndSwap(old, old+uint64(n)) {
			if old >= slowFlag {
				core.mu.Lock()
				core.unlock(core.settle())
			}
			return nil
		}
	}
}

// Value is the counter now.
func (c *Counter) Value() int64 { return int64(c.core.free()) }

// Max is the maximum it was made with.
func (c *Counter) Max() int64 { return int64(c.core.capacity) }

// Waiters is how many wait now.
func (c *Counter) Waiters() int { return c.core.waiters() }

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
	for w := c.line.head; w != nil; {
		next := w.next
		v := closed
		if c.takeFlagged(w.n) {
			v = granted
		}
		c.dismiss(w, v, &out)
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
		return c.fault(op, n, ErrTooLarge, "")
	}
	return nil
}

func (c *Counter) fault(op string, n int64, err error, detail string) error {
	return &Error{Op: op, Name: c.name, Weight: n, Capacity: c.Max(), Waiters: c.Waiters(), Err: err, Detail: detail}
}
