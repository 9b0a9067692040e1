package wfq_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/internal/seal"
	"github.com/sema-go/sema/wfq"
)

// serve acquires n permits of a class, holds them and releases them. It returns the wait.
func serve(ctx context.Context, t *testing.T, c *wfq.Class, n int64, hold time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	p, err := c.Acquire(ctx, n)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return time.Since(start)
	}
	waited := time.Since(start)
	time.Sleep(hold)
	p.Release()
	return waited
}

const paceHold = 10 * time.Millisecond

func TestClass_CautiousWaitMindsThoseThatOvertake(t *testing.T) {
	t.Parallel()
	// A short queue of another class is no short wait, if others of it arrive all the time.
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		backlogged, arriving := q.Class("backlogged"), q.Class("arriving")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 { // one waits while the other holds
			all.Go(func() {
				for ctx.Err() == nil {
					serve(ctx, t, arriving, 1, paceHold)
				}
			})
		}
		for range 30 {
			all.Go(func() { serve(ctx, t, backlogged, 1, paceHold) })
		}
		time.Sleep(41 * paceHold) // about 10 are left
		cautious := backlogged.CautiousWait(seal.Key{})
		waited := serve(ctx, t, backlogged, 1, paceHold)
		if cautious < waited*9/10 || cautious > 2*waited {
			t.Errorf("to be prepared for %v, and waited %v", cautious, waited)
		}
		cancel()
		all.Wait()
	})
}

func TestClass_CautiousWaitForgetsATimeWithoutService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		q.Set("high", wfq.Share{Tier: 1})
		low, high := q.Class("low"), q.Class("high")
		starving, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for starving.Err() == nil {
					serve(t.Context(), t, high, 1, paceHold)
				}
			})
		}
		synctest.Wait()
		for range 60 {
			all.Go(func() { serve(t.Context(), t, low, 1, paceHold) })
		}
		time.Sleep(time.Minute)
		if wait := low.CautiousWait(seal.Key{}); wait < time.Minute {
			t.Errorf("to be prepared for %v after a minute without service", wait)
		}
		cancel()
		time.Sleep(40 * paceHold)
		cautious := low.CautiousWait(seal.Key{})
		if waited := serve(t.Context(), t, low, 1, paceHold); cautious < waited*9/10 || cautious > 3*waited {
			t.Errorf("to be prepared for %v, and waited %v", cautious, waited)
		}
		all.Wait()
	})
}

func TestClass_CautiousWaitMindsHeavyWaiters(t *testing.T) {
	t.Parallel()
	// The holds of a few that have most of the weight vary more than those of many.
	synctest.Test(t, func(t *testing.T) {
		margin := func(each, n int64) float64 {
			q := wfq.New(8)
			c := q.Class("")
			held, err := c.Acquire(t.Context(), 8)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range n {
				all.Go(func() { serve(t.Context(), t, c, each, paceHold) })
			}
			synctest.Wait()
			for range 8 { // so many that a margin applies
				all.Go(func() { serve(t.Context(), t, c, 1, paceHold) })
			}
			time.Sleep(paceHold)
			held.Release() // so that the hold is known
			time.Sleep(paceHold / 2)
			expected, cautious := c.ExpectedWait(1), c.CautiousWait(seal.Key{})
			all.Wait()
			return float64(cautious) / float64(expected)
		}
		if light, heavy := margin(1, 64), margin(8, 8); heavy <= light {
			t.Errorf("margin %.2f for heavy waiters, %.2f for light ones", heavy, light)
		}
	})
}
