// Command tenants limits the requests of an HTTP service, fairly among its tenants: they
// share one rate, and a tenant that sends more than its share waits longer, or is
// rejected, while the others do not notice.
//
//	go run ./examples/tenants
//
// A tenant named noisy sends 100 requests at once, and then one named quiet sends 10. It
// prints what became of them, and how many requests of noisy were served before the last
// one of quiet. Its exit code is 1 if a request of quiet was rejected.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func main() {
	perSecond := flag.Int64("rate", 100, "requests a second, of all tenants together")
	waiting := flag.Int("waiting", 50, "requests of one tenant that may wait, at least 10; others are rejected")
	flag.Parse()
	if *perSecond < 1 || *waiting < 10 {
		fmt.Fprintln(os.Stderr, "tenants: want a rate of at least 1, and at least 10 that may wait")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *perSecond, *waiting); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

// newLimiter returns a fair queue in front of a rate. Of all requests, one waits at the
// rate, and the others by tenant: so a tenant that arrives late is served soon.
func newLimiter(requests *rate.Gate, waiting int) *wfq.Queue {
	queue := wfq.Over(requests, 1, sema.Name("requests"))
	queue.Default(wfq.Share{MaxWaiters: waiting})
	return queue
}

// limit admits requests by the tenant that they name. A real service takes the tenant
// from the credentials of the request.
func limit(queue *wfq.Queue, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant := queue.Class(r.Header.Get("X-Tenant"))
		if _, err := tenant.Acquire(r.Context(), 1); err != nil { //semavet:ignore permits of a rate are spent
			if errors.Is(err, sema.ErrQueueFull) {
				seconds := math.Ceil(max(tenant.ExpectedWait(1).Seconds(), 1))
				w.Header().Set("Retry-After", strconv.FormatInt(int64(min(seconds, 60)), 10))
			}
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func run(ctx context.Context, perSecond int64, waiting int) error {
	requests := rate.New(perSecond, time.Second, rate.Burst(1), sema.Name("rate"))
	queue := newLimiter(requests, waiting)
	served := &history{rejected: map[string]int{}}
	server := httptest.NewServer(limit(queue, served))
	defer server.Close()

	// Nothing is served until all have arrived, so that each run shows the same.
	requests.PauseUntil(time.Now().Add(time.Hour))
	g := group.New(ctx, nil)
	send := func(tenant string, n int) {
		for range n {
			g.Go(func(ctx context.Context) error { return served.get(ctx, server.URL, tenant) })
		}
		class := queue.Class(tenant) // until each of its requests waits or is rejected
		for st := class.Stats(); st.InUse+int64(st.Waiters)+st.Rejected < int64(n) && g.Context().Err() == nil; st = class.Stats() {
			time.Sleep(time.Millisecond)
		}
	}
	send("noisy", 100)
	send("quiet", 10)
	requests.PauseUntil(time.Now())
	if err := g.Wait(); err != nil {
		return err
	}
	return served.report()
}

// A history records which requests were served, in order, and how many were rejected.
type history struct {
	mu       sync.Mutex
	served   []string       // tenants
	rejected map[string]int // by tenant
}

// ServeHTTP serves what the limiter has admitted.
func (h *history) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served = append(h.served, r.Header.Get("X-Tenant"))
}

// get sends a request of a tenant.
func (h *history) get(ctx context.Context, url, tenant string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Tenant", tenant)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rejected[tenant]++
	}
	return nil
}

// report prints what became of the requests.
func (h *history) report() error {
	served, before := map[string]int{}, 0
	for _, tenant := range h.served {
		if served[tenant]++; tenant == "quiet" {
			before = served["noisy"]
		}
	}
	for _, tenant := range []string{"noisy", "quiet"} {
		fmt.Printf("%s: %d served, %d rejected\n", tenant, served[tenant], h.rejected[tenant])
	}
	fmt.Printf("%d of noisy served before the last of quiet\n", before)
	if h.rejected["quiet"] > 0 {
		return fmt.Errorf("%d requests of quiet rejected", h.rejected["quiet"])
	}
	return nil
}
