package prom_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/prom"
)

// gather returns all series, each as name{labels}. A pedantic registry checks that they are
// consistent.
func gather(t *testing.T, c prometheus.Collector) map[string]*dto.Metric {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]*dto.Metric{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			series[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m
		}
	}
	return series
}

// valueOf returns the value of a gauge or counter, or the count of a histogram.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m == nil:
		return -1
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

func wantSeries(t *testing.T, series map[string]*dto.Metric, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if m := series[name]; m == nil {
			t.Errorf("no series %s", name)
		} else if got := valueOf(m); got != value {
			t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(slices.Sorted(maps.Keys(series)), "\n"))
	}
}

func acquire(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCollector_ExportsEveryKind(t *testing.T) {
	t.Parallel()
	metrics := prom.New()
	r := registry.New(registry.Each(sema.Observe(metrics)))
	metrics.AddRegistry(r)

	db := r.Semaphore("db", 40, "why")
	acquire(t, db, 3)
	striped, counter, weighted := sema.NewStriped(8), sema.NewCounter(2, 8), sema.NewWeighted(5)
	acquire(t, striped, 1)
	metrics.Add("striped", striped)
	metrics.Add("counter", counter)
	metrics.Add("weighted", weighted)

	mail := rate.New(100, time.Second)
	acquire(t, mail, 1)
	r.Add("mail", mail, "why")

	tenants := wfq.New(10, sema.Name("tenants"), sema.Observe(metrics))
	acquire(t, tenants.Class("acme"), 2)
	r.Add("tenants", tenants, "why")

	items := pool.New(pool.Config[int]{Size: 4, Open: func(context.Context) (int, error) { return 1, nil }})
	item, err := items.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Add("connections", items, "why")

	api := admit.New(admit.Config{Name: "api", Queue: wfq.New(5), Breaker: admit.NewBreaker(admit.BreakerConfig{})})
	api.Shed(true)
	if _, err := api.Admit(t.Context(), admit.Request{Class: "free"}); err == nil {
		t.Fatal("admitted while shedding")
	}
	r.Add("api", api, "why")

	local, err := host.Open("gpu", 2, host.Dir(t.TempDir()), sema.Observe(metrics))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	acquire(t, local, 1)
	r.Add("gpu", local, "why")

	end := make(chan struct{})
	work := group.New(t.Context(), sema.New(6), group.AllErrors)
	defer work.Wait()
	defer close(end)
	r.Add("import", work, "why")
	for range 2 {
		work.GoN(2, func(context.Context) error { <-end; return nil })
	}
	work.GoWithin(t.Context(), 7, func(context.Context) error { return nil }) // more than the capacity

	client := fleet.New(memstore.New())
	defer client.Close(context.Background(), fleet.CloseRelease)
	remote, err := client.Semaphore("jobs", 7, sema.Observe(metrics))
	if err != nil {
		t.Fatal(err)
	}
	r.Add("jobs", remote, "why")
	acquire(t, remote, 2)

	series := gather(t, metrics)
	wantSeries(t, series, map[string]float64{
		`sema_permits_capacity{backend="process",semaphore="db"}`:                                          40,
		`sema_permits_in_use{backend="process",semaphore="db"}`:                                            3,
		`sema_acquires_total{backend="process",outcome="acquired",semaphore="db"}`:                         1,
		`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="db"}`:                   1,
		`sema_permits_in_use{backend="process",semaphore="striped"}`:                                       1,
		`sema_permits_capacity{backend="process",semaphore="weighted"}`:                                    5,
		`sema_permits_in_use{backend="process",semaphore="counter"}`:                                       valueOf(series[`sema_permits_in_use{backend="process",semaphore="counter"}`]),
		`sema_rate_permits_per_second{backend="process",semaphore="mail"}`:                                 100,
		`sema_class_permits_in_use{backend="process",class="acme",semaphore="tenants"}`:                    2,
		`sema_class_acquires_total{backend="process",class="acme",outcome="acquired",semaphore="tenants"}`: 1,
		`sema_pool_items{backend="process",semaphore="connections",state="lent"}`:                          1,
		`sema_pool_opens_total{backend="process",semaphore="connections"}`:                                 1,
		`sema_permits_capacity{backend="process",semaphore="import"}`:                                      6,
		`sema_permits_in_use{backend="process",semaphore="import"}`:                                        4,
		`sema_acquires_total{backend="process",outcome="acquired",semaphore="import"}`:                     2,
		`sema_acquires_total{backend="process",outcome="rejected",semaphore="import"}`:                     1,
		`sema_group_running{backend="process",semaphore="import"}`:                                         2,
		`sema_group_failures_total{backend="process",semaphore="import"}`:                                  0,
		`sema_sheds_total{backend="process",reason="shedding",semaphore="api"}`:                            1,
		`sema_sheds_total{backend="process",reason="queue-full",semaphore="api"}`:                          0,
		`sema_class_sheds_total{backend="process",class="free",reason="shedding",semaphore="api"}`:         1,
		`sema_shedding{backend="process",semaphore="api"}`:                                                 1,
		`sema_breaker_state{backend="process",semaphore="api",state="closed"}`:                             1,
		`sema_permits_in_use{backend="host",semaphore="gpu"}`:                                              1,
		`sema_permits_capacity{backend="fleet",semaphore="jobs"}`:                                          7,
		`sema_permits_in_use{backend="fleet",semaphore="jobs"}`:                                            2,
		`sema_leases_held_permits{backend="fleet",semaphore="jobs"}`:                                       2,
		`sema_leases_lost_total{backend="fleet",reason="expired",semaphore="jobs"}`:                        0,
		`sema_lease_renewals_total{backend="fleet",result="error",semaphore="jobs"}`:                       0,
		`sema_acquire_wait_seconds{backend="fleet",outcome="acquired",semaphore="jobs"}`:                   1,
		`sema_folded_total{kind="name"}`:                                                                   0,
	})
	for name := range series {
		if strings.Contains(name, "holder=") || strings.Contains(name, "lease=") {
			t.Errorf("series %s has a label for a holder", name)
		}
	}
	item.Release()
}

// TestCollector_HistogramContainsAllAcquires checks that the acquires that were granted at
// once, of which observers receive a sample, are in the distribution of waits.
func TestCollector_HistogramContainsAllAcquires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := prom.New()
		r := registry.New(registry.Each(sema.Observe(metrics)))
		metrics.AddRegistry(r)
		s := r.Semaphore("db", 1, "why", sema.MaxWait(time.Minute))
		for range 999 {
			acquire(t, s, 1).Release()
		}
		for range 10 {
			held := acquire(t, s, 1)
			time.AfterFunc(2*time.Second, held.Release)
			acquire(t, s, 1).Release()
		}
		held := acquire(t, s, 1)
		if _, err := s.Acquire(t.Context(), 1); err == nil {
			t.Fatal("no timeout")
		}
		held.Release()
		series := gather(t, metrics)
		wantSeries(t, series, map[string]float64{
			`sema_acquires_total{backend="process",outcome="acquired",semaphore="db"}`:       1020,
			`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="db"}`: 1020,
			`sema_acquire_wait_seconds{backend="process",outcome="timeout",semaphore="db"}`:  1,
			`sema_waits_total{backend="process",semaphore="db"}`:                             11,
			`sema_wait_seconds_total{backend="process",semaphore="db"}`:                      80,
		})
		h := series[`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="db"}`].Histogram
		if h.GetZeroCount() != 1010 || h.GetSampleSum() != 20 {
			t.Errorf("%d waits of 0, %v s in total; want 1010 and 20", h.GetZeroCount(), h.GetSampleSum())
		}
		for _, b := range h.Bucket {
			want := uint64(1010)
			if b.GetUpperBound() >= 2 {
				want = 1020
			}
			if b.GetCumulativeCount() != want {
				t.Errorf("bucket %v has %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
			}
		}
	})
}

func TestCollector_HundredThousandNamesAreBounded(t *testing.T) {
	t.Parallel()
	const names = 100_000 / raceFactor
	metrics := prom.New(prom.Declare("vip"))
	for i := range names {
		s := sema.New(1, sema.Name(fmt.Sprintf("user-%d", i)), sema.Observe(metrics))
		acquire(t, s, 1).Release()
	}
	vip := sema.New(1, sema.Name("vip"), sema.Observe(metrics))
	defer acquire(t, vip, 1).Release()
	vip.TryAcquire(t.Context(), 1)
	series := gather(t, metrics)
	if n := namesIn(series, "semaphore"); len(n) != 102 || !n["other"] || !n["vip"] || !n["user-99"] {
		t.Errorf("%d names, want 100, other and vip", len(n))
	}
	if len(series) > 25*102 {
		t.Errorf("%d series", len(series))
	}
	wantSeries(t, series, map[string]float64{
		`sema_folded_total{kind="name"}`:                                                 2 * (names - 100), // an acquire and a release each
		`sema_hold_seconds{backend="process",semaphore="other"}`:                         names - 100,
		`sema_acquires_total{backend="process",outcome="rejected",semaphore="vip"}`:      1,
		`sema_acquire_rejections_total{backend="process",reason="full",semaphore="vip"}`: 1,
	})
}

func TestCollector_HundredThousandClassesAreBounded(t *testing.T) {
	t.Parallel()
	const tenants = 100_000 / raceFactor
	metrics := prom.New(prom.MaxClasses(10))
	q := wfq.New(sema.MaxCapacity, sema.Name("api"), sema.Observe(metrics))
	metrics.Add("api", q)
	for i := range tenants {
		defer acquire(t, q.Class(fmt.Sprintf("tenant-%d", i)), 1).Release()
	}
	series := gather(t, metrics)
	if n := namesIn(series, "class"); len(n) != 11 {
		t.Errorf("classes %v, want 10 and other", n)
	}
	wantSeries(t, series, map[string]float64{
		`sema_class_permits_in_use{backend="process",class="other",semaphore="api"}`:                       tenants - 10,
		`sema_class_acquires_total{backend="process",class="other",outcome="acquired",semaphore="api"}`:    tenants - 10,
		`sema_acquires_total{backend="process",outcome="acquired",semaphore="api"}`:                        tenants,
		`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="api"}`:                  tenants,
		`sema_class_acquire_wait_seconds{backend="process",class="tenant-0",semaphore="api"}`:              1,
		`sema_class_acquires_total{backend="process",class="tenant-9",outcome="acquired",semaphore="api"}`: 1,
	})
}

func namesIn(series map[string]*dto.Metric, label string) map[string]bool {
	names := map[string]bool{}
	for _, m := range series {
		for _, l := range m.Label {
			if l.GetName() == label {
				names[l.GetValue()] = true
			}
		}
	}
	return names
}

func TestCollector_KeysAreClasses(t *testing.T) {
	t.Parallel()
	metrics := prom.New(prom.MaxClasses(2))
	k := group.NewKeyed(3, sema.Name("mail"), sema.Observe(metrics))
	metrics.Add("mail", k)
	for _, key := range []string{"a", "b", "c", "d"} {
		defer acquire(t, k.Of(key), 2).Release()
	}
	wantSeries(t, gather(t, metrics), map[string]float64{
		`sema_permits_in_use{backend="process",semaphore="mail"}`:                                        8,
		`sema_acquires_total{backend="process",outcome="acquired",semaphore="mail"}`:                     4,
		`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="mail"}`:               4,
		`sema_class_permits_in_use{backend="process",class="a",semaphore="mail"}`:                        2,
		`sema_class_permits_in_use{backend="process",class="other",semaphore="mail"}`:                    4,
		`sema_class_acquires_total{backend="process",class="other",outcome="acquired",semaphore="mail"}`: 2,
		`sema_class_permits_capacity{backend="process",class="b",semaphore="mail"}`:                      3,
	})
}

func TestCollector_HeadOfQueueAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := prom.New()
		r := registry.New(registry.Each(sema.Observe(metrics)))
		metrics.AddRegistry(r)
		s := r.Semaphore("db", 1, "why")
		const age = `sema_head_of_queue_age_seconds{backend="process",semaphore="db"}`
		held := acquire(t, s, 1)
		wantSeries(t, gather(t, metrics), map[string]float64{age: 0})
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		waiters.Go(func() { s.Acquire(ctx, 1) })
		time.Sleep(10 * time.Second)
		waiters.Go(func() { acquire(t, s, 1).Release() })
		time.Sleep(20 * time.Second)
		wantSeries(t, gather(t, metrics), map[string]float64{age: 30})
		cancel()
		synctest.Wait()
		wantSeries(t, gather(t, metrics), map[string]float64{age: 20})
		held.Release()
		waiters.Wait()
		wantSeries(t, gather(t, metrics), map[string]float64{age: 0})
	})
}

// TestCollector_CountersNeverDecrease checks it while gates are used, classes are forgotten,
// and the two sources of a distribution are read at different moments.
func TestCollector_CountersNeverDecrease(t *testing.T) {
	t.Parallel()
	metrics := prom.New(prom.MaxClasses(3))
	r := registry.New(registry.Each(sema.Observe(metrics)))
	metrics.AddRegistry(r)
	db := r.Semaphore("db", 2, "why")
	q := wfq.New(4, sema.Name("q"), sema.Observe(metrics))
	r.Add("q", q, "why")
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	for i := range 6 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for _, g := range []sema.Gate{db, q.Class(fmt.Sprint((n + i) % 12))} {
					if p, err := g.Acquire(ctx, 1); err == nil {
						p.Release()
					}
				}
			}
		})
	}
	last := map[string]float64{}
	for range 60 {
		for name, m := range gather(t, metrics) {
			if m.Gauge != nil {
				continue
			}
			if v := valueOf(m); v < last[name] {
				t.Fatalf("%s fell from %v to %v", name, last[name], v)
			} else {
				last[name] = v
			}
		}
	}
}

func TestCollector_RemovedGatesDisappear(t *testing.T) {
	t.Parallel()
	metrics := prom.New()
	r := registry.New(registry.Each(sema.Observe(metrics)))
	metrics.AddRegistry(r)
	for i := range 1000 {
		name := fmt.Sprint("job-", i)
		acquire(t, r.Semaphore(name, 1, "why"), 1).Release()
		gatherEvery := i%100 == 0
		if gatherEvery {
			gather(t, metrics)
		}
		r.Remove(name)
	}
	if n := len(namesIn(gather(t, metrics), "semaphore")); n > 110 {
		t.Errorf("%d names of gates that were removed", n)
	}
}

func TestCollector_InvalidNamesAreReplaced(t *testing.T) {
	t.Parallel()
	metrics := prom.New()
	for _, name := range []string{"a\xff", "a\xfe"} {
		acquire(t, sema.New(1, sema.Name(name), sema.Observe(metrics)), 1).Release()
	}
	if n := namesIn(gather(t, metrics), "semaphore"); !maps.Equal(n, map[string]bool{"a\uFFFD": true}) {
		t.Errorf("names %v", n)
	}
}
