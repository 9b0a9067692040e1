package admit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/upstreamtest"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// provider has the limits of the recipe in docs/admit.md.
var provider = upstreamtest.Limits{
	Window: time.Minute, Requests: 500, Tokens: 100_000, AtOnce: 20, Least: 200 * time.Millisecond, Most: 2 * time.Second,
}

const maxTokens = 400

// complete sends a prompt, and settles what it has cost.
func complete(ctx context.Context, client *http.Client) error {
	body, _ := json.Marshal(upstreamtest.Prompt{MaxTokens: maxTokens})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	var done upstreamtest.Completion
	if err := json.NewDecoder(resp.Body).Decode(&done); err != nil {
		return err
	}
	admit.SettleResponse(resp, done.Usage.TotalTokens)
	return nil
}

// work sends prompts through the controllers for ten minutes of virtual time. There must be
// no violation, at 90 % of the limits or more.
func work(t *testing.T, workers int, controllers ...*admit.Controller) {
	t.Helper()
	const minutes = 10
	u := upstreamtest.New(provider)
	transport, stop := u.Pipe()
	defer stop()
	end := time.Now().Add(minutes * time.Minute)
	var wg sync.WaitGroup
	for _, c := range controllers {
		client := &http.Client{Timeout: 10 * time.Minute, Transport: admit.HTTP{
			Controller: c, Cost: func(*http.Request) int64 { return maxTokens }, // an upper bound
		}.Transport(transport)}
		for range workers / len(controllers) {
			wg.Go(func() {
				for time.Now().Before(end) {
					if err := complete(t.Context(), client); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for _, v := range u.Violations() {
		t.Error(v)
	}
	requests, tokens := u.Served()
	use := u.Use(minutes * time.Minute)
	t.Logf("%.1f %% of the limits used: %d requests, %d tokens", 100*use, requests, tokens)
	if use < 0.9 {
		t.Errorf("%.1f %% of the limits used, want 90 %%", 100*use)
	}
}

// TestController_LLMBudget keeps the limits of an upstream in one process.
func TestController_LLMBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work(t, 40, admit.New(admit.Config{
			Queue: wfq.New(20), Logger: quiet,
			Rate:   rate.New(480, time.Minute, rate.Burst(10)),
			Budget: rate.New(95_000, time.Minute, rate.Burst(3_000)),
		}))
	})
}

// TestController_LLMBudgetOfAFleet keeps them in three processes, which share requests, tokens
// and concurrency through a store.
func TestController_LLMBudgetOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var all []*admit.Controller
		for range 3 {
			client := fleet.New(store)
			defer client.Close(t.Context())
			shared := func(name string, n int64, opts ...fleet.Option) *fleet.Semaphore {
				s, err := client.Semaphore(name, n, opts...)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			all = append(all, admit.New(admit.Config{
				Queue: wfq.Over(shared("at-once", 20), 20), Logger: quiet,
				Rate:   shared("requests", 490, fleet.Rate(62*time.Second)),
				Budget: shared("tokens", 98_000, fleet.Rate(62*time.Second)),
			}))
		}
		work(t, 36, all...)
	})
}

// TestController_ObeysAnUpstreamWithSmallerLimits: the limits of the controller are too high,
// by an order of magnitude. The headers of the upstream keep the rejected requests few.
func TestController_ObeysAnUpstreamWithSmallerLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := upstreamtest.New(upstreamtest.Limits{Window: time.Minute, Requests: 50, Tokens: 1_000_000, AtOnce: 100, Least: time.Millisecond, Most: time.Second})
		transport, stop := u.Pipe()
		defer stop()
		client := fleet.New(memstore.New())
		defer client.Close(t.Context())
		requests, err := client.Semaphore("requests", 500, fleet.Rate(time.Minute), sema.MaxWait(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		c := admit.New(admit.Config{Queue: wfq.New(5), Rate: requests, Logger: quiet})
		caller := &http.Client{Transport: admit.HTTP{Controller: c}.Transport(transport)}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if complete(ctx, caller) != nil {
						time.Sleep(time.Second)
					}
				}
			})
		}
		wg.Wait()
		served, _ := u.Served()
		t.Logf("%d served, %d rejected", served, len(u.Violations()))
		if rejected := len(u.Violations()); rejected > 100 || served < 300 {
			t.Errorf("%d requests were rejected and %d served in ten minutes", rejected, served)
		}
	})
}
