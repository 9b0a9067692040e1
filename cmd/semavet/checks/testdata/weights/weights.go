// Package weights releases other weights than it acquires.
package weights

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

type cache struct {
	memory *sema.Weighted
	theirs *semaphore.Weighted
}

func newCache() *cache {
	return &cache{memory: sema.NewWeighted(10), theirs: semaphore.NewWeighted(10)}
}

func (c *cache) tooLittle(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 3); err != nil { // want `c.memory.Acquire acquires 3, of which 1 is released on a path to the return in line 26; release as much as was acquired`
		return err
	}
	defer c.memory.Release(1)
	return work(ctx)
}

func (c *cache) tooMuch(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.memory.Release(3) // want `c.memory.Release\(3\) releases more than the 1 that this path acquired: what others hold is released`
	return work(ctx)
}

func (c *cache) twice(ctx context.Context, n int64) error {
	if err := c.theirs.Acquire(ctx, n); err != nil {
		return err
	}
	defer c.theirs.Release(n)
	if err := work(ctx); err != nil {
		c.theirs.Release(n) // want `c.theirs.Release\(n\) releases more than the n that this path acquired`
		return err
	}
	return nil
}

func (c *cache) forgotten(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 2); err != nil { // want `what c.memory.Acquire\(ctx, 2\) acquires is not released on a path to the return in line 54; defer its Release after checking the error`
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	c.memory.Release(2)
	return nil
}

func (c *cache) forgottenInALoop(ctx context.Context, n int64) {
	for range 3 {
		if !c.memory.TryAcquire(n) { // want `what c.memory.TryAcquire\(n\) acquires is not released on a path to the next iteration`
			return
		}
		if work(ctx) != nil {
			continue
		}
		c.memory.Release(n)
	}
}

func (c *cache) afterFailure(ctx context.Context) error {
	err := c.memory.Acquire(ctx, 1)
	if err != nil {
		c.memory.Release(1) // want `c.memory.Release\(1\) also runs if c.memory.Acquire failed: what others hold is released; release only after it succeeded`
		return err
	}
	defer c.memory.Release(1)
	return work(ctx)
}

func (c *cache) deferredTooEarly(ctx context.Context) error {
	defer c.memory.Release(1) // want `c.memory.Release\(1\) also runs if c.memory.Acquire failed`
	if err := c.memory.Acquire(ctx, 1); err != nil {
		return err
	}
	return work(ctx)
}

func (c *cache) deferredBeforeTheCheck(ctx context.Context) error {
	err := c.memory.Acquire(ctx, 1)
	defer func() { c.memory.Release(1) }() // want `c.memory.Release\(1\) also runs if c.memory.Acquire failed`
	if errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *cache) deferredInALoop(ctx context.Context) error {
	for range 3 {
		if err := c.memory.Acquire(ctx, 1); err != nil {
			return err
		}
		defer c.memory.Release(1) // want `this defer keeps what every iteration acquires until the function returns; call c.memory.Release\(1\) in the loop, or move the loop body into a function`
	}
	return nil
}

func parameter(ctx context.Context, w *sema.Weighted) error {
	if err := w.Acquire(ctx, 3); err != nil { // want `w.Acquire acquires 3, of which 1 is released`
		return err
	}
	defer w.Release(1)
	return work(ctx)
}

func local(ctx context.Context) error {
	w := semaphore.NewWeighted(3)
	if err := w.Acquire(ctx, 2); err != nil { // want `what w.Acquire\(ctx, 2\) acquires is not released on a path`
		return err
	}
	if work(ctx) == nil {
		w.Release(2)
	}
	return nil
}

func (c *cache) right(ctx context.Context, n int64) error {
	if err := c.memory.Acquire(ctx, n); err != nil {
		return err
	}
	defer c.memory.Release(n)
	err := c.theirs.Acquire(ctx, 2)
	if err != nil {
		return err
	}
	defer func() {
		c.theirs.Release(2)
	}()
	return work(ctx)
}

func (c *cache) inParts(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 3); err != nil {
		return err
	}
	c.memory.Release(1)
	err := work(ctx)
	c.memory.Release(2)
	return err
}

func (c *cache) collected(ctx context.Context) error {
	for range 3 {
		if err := c.memory.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	defer c.memory.Release(3)
	return work(ctx)
}

func (c *cache) oneByOne(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 3); err != nil {
		return err
	}
	for range 3 {
		c.memory.Release(1)
	}
	return nil
}

func (c *cache) ifLimited(ctx context.Context, limited bool) error {
	if limited && !c.memory.TryAcquire(1) {
		return errors.New("full")
	}
	err := work(ctx)
	if limited {
		c.memory.Release(1)
	}
	return err
}

func (c *cache) both(ctx context.Context) error {
	if err := c.memory.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := c.memory.Acquire(ctx, 1); err != nil {
		c.memory.Release(1)
		return err
	}
	c.memory.Release(2)
	return nil
}

func (c *cache) otherWeights(ctx context.Context, n, m int64) error {
	if err := c.memory.Acquire(ctx, n); err != nil {
		return err
	}
	defer func() { c.memory.Release(n) }()
	if err := c.theirs.Acquire(ctx, n); err != nil {
		return err
	}
	n = m
	c.theirs.Release(n)
	return nil
}

// earlier releases in a defer that precedes the acquire, unless it did so before.
func (c *cache) earlier(ctx context.Context) error {
	held := false
	defer func() {
		if held {
			c.memory.Release(1)
		}
	}()
	if err := c.memory.Acquire(ctx, 1); err != nil {
		return err
	}
	held = true
	if ctx.Err() != nil {
		c.memory.Release(1)
		held = false
		return nil
	}
	return work(ctx)
}

func work(context.Context) error { return nil }
