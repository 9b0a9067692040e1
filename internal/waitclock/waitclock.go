// Package waitclock measures how many callers were queued and for how long. Semaphores and groups
// share it.
package waitclock

import (
	"math"
	"math/bits"
	"time"

	"github.com/sema-go/sema/internal/monotonic"
)

// A Clock counts how many callers were queued and for how long: it integrates the length of
// a queue over time. The zero Clock is that of an empty queue. The mutex of the queue guards
// it.
//
// It reads the time when the length changes. Two readings take a fifth of a hand-off. So
// while the queue is long, only every eighth change reads it. The length between two
// readings then counts as the mean of the lengths at both. The true length differs from
// that by at most 4.
//
// It is small because it shares a cache line with fields that a hand-off writes anyway.
type Clock struct {
	total   time.Duration // total wait time until last
	last    int64         // the last reading, since the epoch of package monotonic
	then    int           // length of the queue after that reading
	changes uint64        // number of changes of the length, by one each
}

const (
	longQueue = 32
	readEvery = 8
)

// Change records that the length changes from one value to the other.
func (c *Clock) Change(from, to int) {
	c.changes++
	if from < longQueue || c.changes%readEvery == 0 {
		c.read(from)
		c.then = to
	}
}

// Joined returns the number of callers ever queued, given that n are queued now.
func (c *Clock) Joined(n int) int64 { return int64(c.changes+uint64(n)) / 2 }

// Total returns the total time that callers have been queued, given that n are queued now.
func (c *Clock) Total(n int) time.Duration {
	if n > 0 {
		c.read(n)
	}
	return c.total
}

// read adds the wait time since the last reading. n is the current length of the queue.
func (c *Clock) read(n int) {
	now := int64(monotonic.Since())
	// A clock that steps back, at the border of a synctest bubble, adds nothing. The
	// sum is capped at 292 years.
	high, low := bits.Mul64(uint64(max(0, now-c.last)), uint64(c.then+n))
	if sum := uint64(c.total) + low/2; high > 0 || sum > math.MaxInt64 {
		c.total = math.MaxInt64
	} else {
		c.total = time.Duration(sum)
	}
	c.last, c.then = now, n
}
