package loadtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// A caller acquires and releases repeatedly.
type caller struct {
	took   histogram
	errors map[string]int64
}

// recovery is the pause of a caller after an error, so that a failing store is not flooded.
const recovery = 100 * time.Millisecond

// measure runs callers on a semaphore until the duration has passed or ctx ends.
func measure(ctx context.Context, gate sema.Gate, s settings, p *progress) *result {
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	var pairs, failures atomic.Int64
	callers := make([]*caller, s.callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		c := &caller{errors: map[string]int64{}}
		callers[i] = c
		wg.Go(func() { c.run(ctx, gate, s.hold, &pairs, &failures) })
	}
	p.follow(ctx, start, &pairs, &failures)
	wg.Wait()
	r := &result{settings: s, elapsed: time.Since(start), Pairs: pairs.Load(), Errors: map[string]int64{}}
	for _, c := range callers {
		r.took.merge(&c.took)
		for text, n := range c.errors {
			r.Errors[text] += n
		}
	}
	return r
}

func (c *caller) run(ctx context.Context, gate sema.Gate, hold time.Duration, pairs, failures *atomic.Int64) {
	for ctx.Err() == nil {
		start := time.Now()
		permit, err := gate.Acquire(ctx, 1)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			c.errors[err.Error()]++
			failures.Add(1)
			sleep(ctx, recovery)
			continue
		}
		c.took.add(time.Since(start))
		if hold > 0 {
			sleep(ctx, hold)
		}
		permit.Release()
		pairs.Add(1)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
