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
// told of refused posts ([OverReleased]) only. It panics unless
// 0 ≤ initial ≤ max and 1 ≤ max ≤ [MaxCapacity].
func NewCounter(initial, max int64, opts ...Option) *Counter {
	if initial < 0 || max < 1 || initial > max || max > MaxCapacity {
		panic(fmt.Sprintf("sema: NewCounter(%d, %d): want 0 ≤ initial ≤ max and 1 ≤ max ≤ %d", initial, max, MaxCapacity))
	}
	conf := newConfig(opts)
	c := &Counter{name: conf.name, observers: conf.probe.observers}
	c.core.order = conf.order
	c.core.lineLimit = conf.lineLimit
	c.core.capacity = uint64(max)
	c.core.word.Store(uint64(initial))
	return c
}

// Wait lowers the counter by n, waiting in turn until it is at least n. It
// fails with the context's cause, ErrTooLarge if n exceeds the maximum,
// ErrQueueFull, ErrClosed, or ErrInvalid. Wait of 0 does not wait.
func (c *Counter) Wait(ctx context.Context, n int64) error {
	if err := c.check(ctx, "wait", n); err != nil {
		return err
	}
	if n == 0 {
		if v := c.core.closedFor(); v != granted {
			return c.fault("wait", n, sentinelOf(v), "")
		}
		return nil
	}
	w, v := c.core.enter(uint64(n), ctx.Done())
	if v == pending {
		v = c.core.park(ctx, w, 0)
	}
	switch v {
	case granted:
		return nil
	case cancelled:
		return context.Cause(ctx)
	}
	return c.fault("wait", n, sentinelOf(v), "")
}

// TryWait lowers the counter by n if it can at once, and says whether it did.
func (c *Counter) TryWait(n int64) bool {
	if n == 0 {
		return c.core.closedFor() == granted
	}
	return n > 0 && n <= MaxCapacity && c.core.tryTake(uint64(n)) == granted
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
				o.Observe(Event{Kind: OverReleased, Name: c.name, Weight: n, Err: err})
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

// Close wakes all who wait, and refuses all who will, with ErrClosed. Posts
// still count. It always returns nil.
func (c *Counter) Close() error {
	c.core.mu.Lock()
	c.core.unlock(c.core.turnAway(shut))
	return nil
}

func (c *Counter) check(ctx context.Context, op string, n int64) error {
	switch {
	case c.core.capacity == 0:
		panic("sema: " + op + " on a zero Counter; make it with sema.NewCounter")
	case ctx == nil:
		return c.fault(op, n, ErrInvalid, "nil context; pass context.Background() to wait without limit")
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
