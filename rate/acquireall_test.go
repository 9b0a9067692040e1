package rate_test

import (
	"context"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// TestAcquireAll_FailureRefundsTheRate exactly, whatever fails: a later gate, or the context
// while it waits.
func TestAcquireAll_FailureRefundsTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := rate.New(10, time.Minute, sema.Name("a")), rate.New(10, time.Minute, sema.Name("b"))
		full := sema.New(2, sema.MaxWaiters(0))
		busy, err := full.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		short := func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Millisecond)
		}
		idle := sema.New(1)
		for what, wants := range map[string][]sema.Want{
			"a queue that is full":     {{Gate: first, N: 4}, {Gate: second, N: 1}, {Gate: full, N: 2}},
			"a weight too large":       {{Gate: first, N: 4}, {Gate: second, N: 11}},
			"a rate that is used up":   {{Gate: first, N: 4}, {Gate: second, N: 6}, {Gate: rate.New(1, time.Hour, sema.Name("c")), N: 2}},
			"a semaphore that is full": {{Gate: first, N: 4}, {Gate: idle, N: 1}, {Gate: full, N: 2}},
			"a weight given twice":     {{Gate: first, N: 4}, {Gate: first, N: 4}, {Gate: full, N: 2}},
		} {
			ctx, cancel := short()
			if _, err := sema.AcquireAll(ctx, wants...); err == nil {
				t.Errorf("%s: acquired", what)
			}
			cancel()
			wantFree(t, first, 10)
			wantFree(t, second, 10)
		}

		waits := sema.New(1)
		held, err := waits.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // less than a permit returns in
		defer cancel()
		if _, err := sema.AcquireAll(ctx, sema.Want{Gate: first, N: 10}, sema.Want{Gate: waits, N: 1}); err != context.DeadlineExceeded {
			t.Error(err)
		}
		wantFree(t, first, 10)
		held.Release()
		busy.Release()
		p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: first, N: 3}, sema.Want{Gate: waits, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		wantFree(t, first, 7) // spent
	})
}
