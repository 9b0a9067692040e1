package admit_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// An upstream enforces limits per minute in sliding windows, and counts their violations. It
// knows the tokens of a request when the request ends, and charges them at its start.
type upstream struct {
	requests, tokens int64 // per minute
	concurrency      int

	mu         sync.Mutex
	used       []usage
	running    int
	violations int
	total      int64
}

type usage struct {
	at     time.Time
	tokens int64
}

func (u *upstream) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running++; u.running > u.concurrency {
		u.violations++
	}
}

func (u *upstream) end(began time.Time, tokens int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running--
	u.total += tokens
	u.used = append(u.used, usage{began, tokens})
}

// judge counts the windows of a minute that exceed a limit.
func (u *upstream) judge() {
	slices.SortFunc(u.used, func(a, b usage) int { return a.at.Compare(b.at) })
	var tokens int64
	first := 0
	for i, use := range u.used {
		tokens += use.tokens
		for use.at.Sub(u.used[first].at) >= time.Minute {
			tokens -= u.used[first].tokens
			first++
		}
		if tokens > u.tokens || int64(i-first+1) > u.requests {
			u.violations++
		}
	}
}

// TestController_LLMBudget runs clients against an upstream for ten minutes: no violation,
// at 90 % of the budget or more.
func TestController_LLMBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const minutes = 10
		u := &upstream{requests: 500, tokens: 100_000, concurrency: 20}
		budget := rate.New(95_000, time.Minute, rate.Burst(5_000))
		c := admit.New(admit.Config{
			Queue: wfq.New(20), Logger: quiet,
			Rate: rate.New(475, time.Minute, rate.Burst(25)), Budget: budget,
		})
		end := time.Now().Add(minutes * time.Minute)
		var wg sync.WaitGroup
		for worker := range 40 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(7, uint64(worker)))
				for time.Now().Before(end) {
					tokens := 100 + random.Int64N(300)
					a, err := c.Admit(t.Context(), admit.Request{Cost: 400}) // the estimate is an upper bound
					if err != nil {
						t.Error(err)
						return
					}
					u.begin()
					began := time.Now()
					time.Sleep(time.Duration(200+random.Int64N(1800)) * time.Millisecond)
					u.end(began, tokens)
					a.Settle(tokens)
					a.Done(admit.OK)
				}
			})
		}
		wg.Wait()
		u.judge()
		if u.violations > 0 {
			t.Errorf("%d violations", u.violations)
		}
		use := float64(u.total) / float64(minutes*u.tokens)
		t.Logf("%.1f %% of the tokens used, %d requests", 100*use, len(u.used))
		if requests := float64(len(u.used)) / float64(minutes*u.requests); max(use, requests) < 0.9 {
			t.Errorf("%.0f %% of the tokens and %.0f %% of the requests used", 100*use, 100*requests)
		}
	})
}
