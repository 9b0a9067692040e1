package pool

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sema-go/sema"
)

// A Config configures [New]. Open and a bound, Size or Gate, are required.
//
// Open and Check run in a goroutine of their own. Their context has the values of a
// caller that waits, and outlives its cancellation. If they panic, a caller that waits for
// an item panics; if none waits, the program ends, as with any panic of a goroutine.
type Config[T any] struct {
	// Open returns a new item. It is called by as many goroutines as MaxOpening allows.
	Open func(ctx context.Context) (T, error)

	// Close closes an item that leaves the pool. It runs in the goroutine that releases or
	// discards the item, or that calls Close, Reset or Resize. The item counts as open, and
	// keeps its permit, until Close returns. nil: nothing is to be done.
	Close func(T)

	// Check returns an error for an item that is broken. It runs before an item is lent
	// that was idle for longer than CheckAfter. A broken item is closed, and the caller
	// gets another one. nil: items are not checked.
	Check func(ctx context.Context, v T) error

	// CheckAfter is how long an item may be idle without a Check before it is lent. It is
	// rounded down by up to a quarter. 0: each idle item is checked.
	CheckAfter time.Duration

	// Size is the number of items that may be open, in use or not. 0: as many as Gate
	// admits.
	Size int64

	// Gate is acquired before each item is lent, and released after it is returned: a fleet
	// semaphore, a class of a queue. It bounds how many items are in use; idle ones hold no
	// permit of it, so set MaxIdleTime. Callers wait for Size while they hold its permit, so
	// leave Size at 0 unless this process needs a bound of its own. nil: Size alone.
	Gate sema.Gate

	// MinIdle is the number of idle items to keep, opened in the background. After an Open
	// that failed, the next attempt waits: from 100ms, twice as long each time, to 30s.
	// Default 0.
	MinIdle int

	// MaxIdleTime is how long an item stays idle before it is closed. It is rounded up by
	// up to a quarter. MinIdle items are kept. 0: no bound.
	MaxIdleTime time.Duration

	// MaxLifetime is the age at which an item is closed, or when it is returned after that.
	// A random tenth is subtracted, so that items opened together are not all closed
	// together. 0: no bound.
	MaxLifetime time.Duration

	// MaxOpening bounds how many calls of Open run at once. 0: no bound but Size.
	MaxOpening int

	// OpenTimeout ends the contexts of Open and Check. Without it a call that hangs counts
	// for Size and MaxOpening until it returns, whether its caller still waits or not.
	// 0: no bound.
	OpenTimeout time.Duration

	// Options are those of the semaphore of Size: [sema.Name], [sema.MaxWait],
	// [sema.MaxWaiters], [sema.Observe], [sema.Diagnose], an order such as [sema.LIFO].
	// MaxWait bounds the wait for the semaphore, and not that for Gate or Open. With an
	// observer or diagnostics, Get allocates once.
	Options []sema.Option
}

// New returns a pool without open items. It opens MinIdle items in the background. New
// panics if the configuration is invalid. Call Close when done with the pool.
func New[T any](c Config[T]) *Pool[T] {
	c.validate()
	for _, d := range []*time.Duration{&c.CheckAfter, &c.MaxIdleTime, &c.MaxLifetime} {
		*d = min(*d, math.MaxInt64/4) // sums do not overflow
	}
	size := c.Size
	if size == 0 {
		size = sema.MaxCapacity
	}
	p := &Pool[T]{
		conf: c, name: sema.SettingsOf(c.Options...).Name, own: sema.New(size, c.Options...),
		round: c.round(), start: time.Now(), size: min(size, sema.MaxCapacity), stopJanitor: make(chan struct{}),
	}
	p.monitored = sema.NewMonitor(p.own, sharedOf(c.Options)...) != nil
	p.checkAfter = int64(max(0, c.CheckAfter-p.round))
	p.table.Store(new([]*slot[T]))
	p.admits.Store(newAdmission())
	if c.MinIdle > 0 {
		p.lock()
		p.startJanitorLocked()
		p.unlock()
	}
	return p
}

// sharedOf returns the shared options, which are those that request reports.
func sharedOf(opts []sema.Option) (shared []sema.SharedOption) {
	for _, o := range opts {
		if s, ok := o.(sema.SharedOption); ok {
			shared = append(shared, s)
		}
	}
	return shared
}

func (c *Config[T]) validate() {
	switch {
	case c.Open == nil:
		panic("pool: New: Config.Open is nil")
	case c.Size < 0 || c.Size == 0 && c.Gate == nil:
		panic(fmt.Sprintf("pool: New: Config.Size is %d: want a positive number, or a Gate", c.Size))
	case c.MinIdle < 0 || c.MaxOpening < 0:
		panic(fmt.Sprintf("pool: New: MinIdle %d, MaxOpening %d: want 0 or more", c.MinIdle, c.MaxOpening))
	case c.CheckAfter < 0 || c.MaxIdleTime < 0 || c.MaxLifetime < 0 || c.OpenTimeout < 0:
		panic("pool: New: a duration of Config is negative")
	}
}

const (
	longestRound  = 10 * time.Second
	shortestRound = time.Millisecond
	fillRound     = time.Second // longest round with MinIdle, which is refilled once a round
)

// round returns the interval of the janitor: an eighth of the shortest duration to be
// measured. 0: there is nothing to measure.
func (c *Config[T]) round() time.Duration {
	shortest := time.Duration(math.MaxInt64)
	if c.Check != nil && c.CheckAfter > 0 {
		shortest = c.CheckAfter
	}
	for _, d := range []time.Duration{c.MaxIdleTime, c.MaxLifetime} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	longest := longestRound
	if c.MinIdle > 0 {
		longest = fillRound
	} else if shortest == math.MaxInt64 {
		return 0
	}
	return min(longest, max(shortest/8, shortestRound))
}
