package admit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// TestBreaker_IsNeverWedged races results, lost probes and an operator, and then asks the
// breaker to recover.
func TestBreaker_IsNeverWedged(t *testing.T) {
	t.Parallel()
	b := admit.NewBreaker(admit.BreakerConfig{
		Window: time.Millisecond, MinCalls: 5, OpenFor: time.Microsecond, MaxOpenFor: 10 * time.Microsecond, Probes: 3, ProbeTimeout: 100 * time.Microsecond,
		OnChange: func(from, to admit.State) {
			if from == to {
				t.Errorf("a change from %v to itself", from)
			}
		},
	})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(worker)))
			for range 5000 {
				a, err := b.Allow()
				if err == nil && random.IntN(4) > 0 { // else it is lost
					a.Done(admit.Result(random.IntN(4)), 0)
				}
				switch random.IntN(500) {
				case 0:
					b.Trip()
				case 1:
					b.Reset()
				case 2:
					b.State()
				}
			}
		})
	}
	wg.Wait()
	for b.State() != admit.Closed { // the test times out if it is wedged
		if a, err := b.Allow(); err == nil {
			a.Done(admit.OK, 0)
		}
	}
}

// TestController_ShutdownAndResumeLoseNothing drains and resumes while requests wait and are
// cancelled. They have more classes than the controller keeps.
func TestController_ShutdownAndResumeLoseNothing(t *testing.T) {
	t.Parallel()
	const permits = 1 << 20 // of which one returns in an hour
	all, own, budget := rate.New(permits, 1<<62), rate.New(permits, 1<<62), rate.New(permits, 1<<62)
	q := wfq.New(3)
	c := admit.New(admit.Config{Queue: q, Rate: all, Budget: budget, RateOf: func(string) rate.Limiter { return own }, MaxWait: time.Millisecond, Logger: quiet})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var admitted, cost int64
	for worker := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(worker)))
			for i := range 1200 { // 4,800 classes
				ctx, cancel := context.WithCancel(t.Context())
				r := admit.Request{Class: fmt.Sprint(worker, "-", i), Weight: 1 + random.Int64N(3), Cost: max(0, random.Int64N(18)-8)}
				if random.IntN(10) == 0 {
					go cancel()
				}
				a, err := c.Admit(ctx, r)
				switch {
				case err == nil:
					a.Done(admit.OK)
					mu.Lock()
					admitted, cost = admitted+1, cost+r.Cost
					mu.Unlock()
				case admit.RejectionOf(err) == nil && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*100*time.Microsecond)
			_ = c.Shutdown(ctx)
			cancel()
			c.Resume()
			c.ShedClass(fmt.Sprint(i%4, "-", i), i%2 == 0)
		}
	})
	wg.Wait()
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		gate *rate.Gate
		used int64
	}{"rate": {all, admitted}, "class rate": {own, admitted}, "budget": {budget, cost}} {
		if used := permits - test.gate.Stats().Free; used != test.used {
			t.Errorf("%s: %d taken, want %d", name, used, test.used)
		}
	}
	if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 {
		t.Errorf("%d in use, %d waiting", st.InUse, st.Waiters)
	}
}

// TestController_RacesForTheLastPermitLoseNothing lets requests pass the rates that then find
// the queue full.
func TestController_RacesForTheLastPermitLoseNothing(t *testing.T) {
	t.Parallel()
	const permits = 1 << 20 // of which one returns in an hour
	all, own := rate.New(permits, 1<<62), rate.New(permits, 1<<62)
	q := wfq.New(1)
	c := admit.New(admit.Config{Queue: q, Rate: all, RateOf: func(string) rate.Limiter { return own }, Logger: quiet})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				if a, err := c.TryAdmit(t.Context(), admit.Request{}); err == nil {
					admitted.Add(1)
					a.Done(admit.OK)
				}
			}
		})
	}
	wg.Wait()
	for name, g := range map[string]*rate.Gate{"rate": all, "class rate": own} {
		if used := permits - g.Stats().Free; used != admitted.Load() {
			t.Errorf("%s: %d taken, want %d", name, used, admitted.Load())
		}
	}
	if st := q.Stats(); st.InUse != 0 {
		t.Errorf("%d in use", st.InUse)
	}
}
