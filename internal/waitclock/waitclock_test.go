package waitclock_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/internal/waitclock"
)

func TestClock_Counts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c waitclock.Clock
		want := func(n int, joined int64, total time.Duration) {
			t.Helper()
			if j, d := c.Joined(n), c.Total(n); j != joined || d != total {
				t.Errorf("%d callers for %v, want %d for %v", j, d, joined, total)
			}
		}
		want(0, 0, 0)
		c.Change(0, 1)
		time.Sleep(time.Second)
		c.Change(1, 2)
		time.Sleep(time.Second)
		want(2, 2, 3*time.Second)
		c.Change(2, 1)
		c.Change(1, 0)
		time.Sleep(time.Hour)
		want(0, 2, 3*time.Second)
	})
}

// TestClock_LongQueue grows a queue to a thousand callers, and shrinks it again: most changes do not
// read the time.
func TestClock_LongQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c waitclock.Clock
		const most = 1000
		for n := range most {
			c.Change(n, n+1)
			time.Sleep(time.Second)
		}
		for n := most; n > 0; n-- {
			c.Change(n, n-1)
			time.Sleep(time.Second)
		}
		if j := c.Joined(0); j != most {
			t.Errorf("%d callers, want %d", j, most)
		}
		want := most * most * time.Second
		if d := (c.Total(0) - want).Abs(); d > 2*4*most*time.Second {
			t.Errorf("off by %v of %v", d, want)
		}
	})
}

func TestClock_DoesNotOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const century = 100 * 365 * 24 * time.Hour
		var c waitclock.Clock
		c.Change(0, 1)
		c.Change(1, 2)
		time.Sleep(century)
		if d := c.Total(2); d != 2*century {
			t.Errorf("%v, want %v", d, 2*century)
		}
		time.Sleep(century)
		for range 2 {
			if d := c.Total(2); d != math.MaxInt64 {
				t.Errorf("%v, want the longest duration", d)
			}
		}
	})
}
