package sematest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// noContext is what a careless caller passes.
var noContext context.Context

// checks are the tests of the suite.
var checks = []check{
	{"a nil context and a negative weight are invalid", always, func(c *checked) {
		c.open(2)
		for name, acquire := range map[string]func(context.Context, int64) (sema.Permit, error){"Acquire": c.gate.Acquire, "TryAcquire": c.gate.TryAcquire} {
			if _, err := acquire(noContext, 1); !errors.Is(err, sema.ErrInvalid) {
				c.Errorf("%s with a nil context: %v, want ErrInvalid", name, err)
			}
			if _, err := acquire(context.Background(), -1); !errors.Is(err, sema.ErrInvalid) {
				c.Errorf("%s of -1: %v, want ErrInvalid", name, err)
			}
		}
		c.takeAll() // nothing was taken
	}},
	{"weight 0 is granted at once as an inert permit", always, func(c *checked) {
		c.open(1)
		c.acquire(1)
		p := c.acquire(0)
		if p.Held() {
			c.Error("a permit of weight 0 is held")
		}
		p.Release()
		c.wantTry(0, nil)
	}},
	{"more than the capacity is too large", always, func(c *checked) {
		c.open(2)
		c.wantTry(c.size+1, sema.ErrTooLarge)
		if _, err := c.gate.Acquire(context.Background(), c.size+1); !errors.Is(err, sema.ErrTooLarge) {
			c.Errorf("acquire %d of %d: %v, want ErrTooLarge", c.size+1, c.size, err)
		}
	}},
	{"a context that has ended acquires nothing", always, func(c *checked) {
		c.open(1)
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		if _, err := c.gate.Acquire(ctx, 1); err != cause {
			c.Errorf("Acquire: %v, want the cause of the context", err)
		}
		if _, err := c.gate.TryAcquire(ctx, 1); err != cause {
			c.Errorf("TryAcquire: %v, want the cause of the context", err)
		}
		c.wantTry(1, nil)
	}},
	{"a try takes what is free and fails with ErrFull", always, func(c *checked) {
		c.open(2)
		c.takeAll()
	}},
	{"the first release of all copies counts", returns, func(c *checked) {
		c.open(2)
		p := c.acquire(1)
		other := p
		for range c.size - 1 {
			c.acquire(1)
		}
		p.Release()
		other.Release()
		p.Release()
		c.wantTry(1, nil)
		c.wantTry(1, sema.ErrFull)
		if p.Held() || other.Held() {
			c.Error("a released permit is held")
		}
	}},
	{"a stale copy does not release a later permit", returns, func(c *checked) {
		c.open(1)
		stale := c.acquire(1)
		stale.Release()
		c.acquire(1)
		stale.Release()
		c.wantTry(1, sema.ErrFull)
	}},
	{"a release serves a waiter", returns, func(c *checked) {
		c.open(1)
		p := c.acquire(1)
		w := c.wait(context.Background(), 1, 1)
		w.wantWaiting(1)
		p.Release()
		w.granted().Release()
		c.wantTry(1, nil)
	}},
	{"a cancelled waiter returns the cause and takes nothing", returns, func(c *checked) {
		c.open(1)
		p := c.acquire(1)
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(context.Background())
		w := c.wait(ctx, 1, 1)
		cancel(cause)
		if _, err := w.result(); err != cause {
			c.Errorf("a cancelled acquire: %v, want the cause of the context", err)
		}
		p.Release()
		c.acquire(1).Release()
	}},
	{"waiters are served in order of arrival", isFIFO, func(c *checked) {
		c.open(1)
		p := c.acquire(1)
		var waiters [4]*waiting
		for i := range waiters {
			waiters[i] = c.wait(context.Background(), 1, i+1)
		}
		for i, w := range waiters {
			p.Release()
			p = w.granted()
			for _, later := range waiters[i+1:] {
				later.wantWaiting(len(waiters) - 1 - i)
			}
		}
		p.Release()
	}},
	{"no try overtakes a waiter", fifoWeights, func(c *checked) {
		c.open(2)
		p := c.acquire(1)
		w := c.wait(context.Background(), 2, 1)
		c.wantTry(1, sema.ErrFull)
		p.Release()
		w.granted().Release()
	}},
	{"a waiter of many permits is not overtaken", fifoWeights, func(c *checked) {
		c.open(4)
		a, b := c.acquire(3), c.acquire(1)
		heavy := c.wait(context.Background(), 4, 1)
		light := c.wait(context.Background(), 1, 2)
		b.Release()
		heavy.wantWaiting(2)
		light.wantWaiting(2)
		a.Release()
		p := heavy.granted()
		light.wantWaiting(1)
		p.Release()
		light.granted().Release()
	}},
	{"a waiter that gives up does not delay those behind it", fifoWeights, func(c *checked) {
		c.open(4)
		p := c.acquire(3)
		ctx, cancel := context.WithCancel(context.Background())
		heavy := c.wait(ctx, 4, 1)
		light := c.wait(context.Background(), 1, 2)
		cancel()
		if _, err := heavy.result(); err != context.Canceled {
			c.Errorf("a cancelled acquire: %v, want context.Canceled", err)
		}
		light.granted().Release()
		p.Release()
	}},
	{"weights are returned as a whole", hasWeights, func(c *checked) {
		c.open(10)
		p, q := c.acquire(7), c.acquire(3)
		c.wantTry(1, sema.ErrFull)
		p.Release()
		c.wantTry(8, sema.ErrFull)
		c.wantTry(7, nil).Release()
		q.Release()
		c.wantTry(10, nil)
	}},
	{"the parts of a permit are released one by one", splits, func(c *checked) {
		c.open(5)
		whole := c.acquire(5)
		first, rest, err := whole.Split(2)
		if err != nil || first.Weight() != 2 || rest.Weight() != 3 {
			c.Fatalf("split 2 of 5: weights %d and %d, error %v", first.Weight(), rest.Weight(), err)
		}
		whole.Release() // inert
		c.wantTry(1, sema.ErrFull)
		first.Release()
		c.wantTry(3, sema.ErrFull)
		c.wantTry(2, nil).Release()
		rest.Release()
		c.wantTry(5, nil)
	}},
	{"permits are conserved when callers race and give up", returns, conserved},
}

// conserved races acquires, tries, cancels and releases, and then wants every permit free.
func conserved(c *checked) {
	const goroutines, rounds = 8, 100
	c.open(3)
	most := int64(1)
	if c.traits.Weights {
		most = c.size
	}
	var inUse atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				acquire := c.gate.Acquire
				switch (g + i) % 3 {
				case 0:
					acquire = c.gate.TryAcquire
				case 1: // ends at the same instants as the holds, so that both race
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i%4)*time.Millisecond)
				}
				p, err := acquire(ctx, 1+int64(g+i)%most)
				cancel()
				if err != nil {
					continue
				}
				if now := inUse.Add(p.Weight()); now > c.size {
					c.Errorf("%d permits held, capacity %d", now, c.size)
				}
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				inUse.Add(-p.Weight())
				p.Release()
			}
		})
	}
	wg.Wait()
	for range c.size {
		c.acquire(1)
	}
	c.wantTry(1, sema.ErrFull)
}
