package prom_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest/promtest"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/prom"
)

// A program is a Go program under load that exports its limits.
type program struct {
	limits  *registry.Registry
	metrics *prom.Collector
	target  string // host:port of /metrics

	ctx  context.Context
	load sync.WaitGroup
}

func startProgram(t *testing.T, opts ...prom.Option) *program {
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{metrics: prom.New(opts...), ctx: ctx}
	p.limits = registry.New(registry.Each(sema.Observe(p.metrics)))
	p.metrics.AddRegistry(p.limits)
	r := prometheus.NewRegistry()
	r.MustRegister(p.metrics)
	server := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	p.target = strings.TrimPrefix(server.URL, "http://")
	t.Cleanup(func() {
		cancel()
		p.load.Wait()
		server.Close()
	})
	return p
}

// run acquires and releases in goroutines until the test ends.
func (p *program) run(goroutines int, gate sema.Gate, hold, pause time.Duration) {
	for range goroutines {
		p.load.Go(func() {
			for p.sleep(pause) {
				permit, err := gate.Acquire(p.ctx, 1)
				if err == nil {
					p.sleep(hold)
					permit.Release()
				}
			}
		})
	}
}

// sleep reports whether the test goes on after d.
func (p *program) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return p.ctx.Err() == nil
	case <-p.ctx.Done():
		return false
	}
}

// A cuttable store can be cut off.
type cuttable struct {
	fleet.Store
	cut atomic.Bool
}

func (c *cuttable) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if c.cut.Load() {
		return protocol.Reply{}, errors.New("cut off")
	}
	return c.Store.Apply(ctx, name, b)
}

// TestAlerts_FireOnFaultsAndStayQuietOtherwise scrapes a loaded program with a real
// Prometheus. The times of the rules are scaled from minutes to seconds.
func TestAlerts_FireOnFaultsAndStayQuietOtherwise(t *testing.T) {
	p := startProgram(t)
	rules := filepath.Join(t.TempDir(), "rules.yml")
	data, err := os.ReadFile(filepath.Join(deploy, "prometheus/sema.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rules, promtest.Scale(data), 0o600); err != nil {
		t.Fatal(err)
	}

	store := &cuttable{Store: memstore.New()}
	client := fleet.New(store)
	defer client.Close(context.Background(), fleet.CloseAbandon)
	gpu, err := client.Semaphore("gpu", 4, sema.Observe(p.metrics), fleet.TTL(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p.limits.Add("gpu", gpu, "why")
	acquire(t, gpu, 1)
	jobs, err := client.Semaphore("jobs", 4, sema.Observe(p.metrics), fleet.TTL(5*time.Second), fleet.UnavailableAfter(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p.limits.Add("jobs", jobs, "why")
	healthy := p.limits.Semaphore("healthy", 10, "why", sema.MaxWait(time.Minute))
	saturated := p.limits.Semaphore("saturated", 2, "why")
	stuck := p.limits.Semaphore("stuck", 1, "why")
	leaky := p.limits.Semaphore("leaky", 100, "why", sema.Diagnose(sema.DiagnoseFull))
	tight := p.limits.Semaphore("tight", 1, "why", sema.MaxWait(time.Millisecond))
	drained := p.limits.Semaphore("drained", 1, "why")
	slow := p.limits.Semaphore("slow", 1, "why")
	api := admit.New(admit.Config{Name: "api", Queue: wfq.New(10)})
	p.limits.Add("api", api, "why")
	request := func() {
		if a, err := api.Admit(p.ctx, admit.Request{}); err == nil {
			a.Done(admit.OK)
		}
	}

	for _, gate := range []sema.Gate{healthy, saturated, stuck, leaky, tight, drained, slow, jobs} {
		p.run(1, gate, time.Millisecond, 20*time.Millisecond)
	}
	p.load.Go(func() {
		for p.sleep(20 * time.Millisecond) {
			request()
		}
	})
	server := promtest.Start(t, promtest.Config{Target: p.target, Rules: []string{rules}, Interval: time.Second})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}

	t.Log("without faults")
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, a := range server.Alerts() {
			if a.State == "firing" {
				t.Fatalf("%v fires without a fault", a.Labels)
			}
		}
	}
	if n := server.Query(`sum(sema:utilisation:ratio)`); len(n) != 1 {
		t.Fatalf("the rules recorded %v", n)
	}

	t.Log("with faults")
	p.run(8, saturated, 20*time.Millisecond, 0)
	p.load.Go(func() { stuck.Acquire(p.ctx, 1); <-p.ctx.Done() }) // never released
	p.run(4, tight, 50*time.Millisecond, 0)
	p.run(5, slow, 500*time.Millisecond, 0)
	for range 3 {
		leak(leaky)
	}
	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	drained.Drain(ended)
	api.Shed(true)
	store.cut.Store(true)

	// What each fault must fire, and may fire: a semaphore that is full is also exhausted.
	must := []string{
		"SemaExhausted saturated", "SemaUtilisationHigh saturated", "SemaStuck stuck", "SemaSaturated stuck", "SemaHeadOfQueueOld stuck",
		"SemaLeakSuspected leaky", "SemaTimeoutsRising tight", "SemaWaitOverBudget slow", "SemaDrainingTooLong drained", "SemaSheddingHigh api",
		"SemaLeasesLost gpu", "SemaHeartbeatsFailing gpu", "SemaStoreUnavailable jobs",
	}
	full := []string{"SemaUtilisationHigh", "SemaExhausted", "SemaSaturated"}
	may := map[string][]string{"saturated": full, "stuck": full, "tight": full, "slow": full, "jobs": {"SemaStuck", "SemaHeadOfQueueOld", "SemaWaitOverBudget", "SemaLeasesLost", "SemaHeartbeatsFailing"}}
	for _, name := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(data), -1) {
		if !slices.ContainsFunc(must, func(m string) bool { return strings.HasPrefix(m, name[1]+" ") }) {
			t.Errorf("no fault fires %s", name[1])
		}
	}
	missing := slices.Clone(must)
	began := time.Now()
	for end := began.Add(4 * time.Minute); len(missing) > 0; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not fire: %v; alerts: %v", missing, server.Alerts())
		}
		if slices.Contains(missing, "SemaLeakSuspected leaky") {
			runtime.GC() // detects leaks
		}
		for _, a := range server.Alerts() {
			if a.State != "firing" {
				continue
			}
			name, semaphore := a.Labels["alertname"], a.Labels["semaphore"]
			fires := name + " " + semaphore
			if i := slices.Index(missing, fires); i >= 0 {
				t.Logf("%s after %v", fires, time.Since(began).Round(time.Second))
				missing = slices.Delete(missing, i, i+1)
			} else if !slices.Contains(must, fires) && !slices.Contains(may[semaphore], name) {
				t.Fatalf("%v fires without its fault", a.Labels)
			}
		}
	}
}

// leak acquires a permit and forgets it.
//
//go:noinline
func leak(s *sema.Semaphore) {
	p, _ := s.Acquire(context.Background(), 1)
	_ = p
}

func TestHistograms_AreNative(t *testing.T) {
	p := startProgram(t)
	db := p.limits.Semaphore("db", 1, "why")
	p.run(4, db, time.Millisecond, time.Millisecond)
	server := promtest.Start(t, promtest.Config{Target: p.target, Args: []string{"--enable-feature=native-histograms"}})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	const query = `histogram_count(sema_acquire_wait_seconds{semaphore="db", outcome="acquired"}) > 100`
	for end := time.Now().Add(time.Minute); len(server.Query(query)) == 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no native histogram")
		}
	}
	if p99 := server.Query(`histogram_quantile(0.99, sema_acquire_wait_seconds{semaphore="db", outcome="acquired"})`); len(p99) != 1 || p99[0] <= 0 || p99[0] > 10 {
		t.Errorf("p99 of %v s", p99)
	}
}
