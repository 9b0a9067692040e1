package prom_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/prom"
)

// TestCollector_NameClash checks that gates that would have the same series do not make the scrape fail, which has the
// series of all others.
func TestCollector_NameClash(t *testing.T) {
	t.Parallel()
	const clash = `sema_name_clashes{backend="process",semaphore="db"}`
	for _, test := range []struct {
		name  string
		setUp func(t *testing.T, metrics *prom.Collector)
		want  map[string]float64
	}{
		{"of two registries", func(t *testing.T, metrics *prom.Collector) {
			for n := range int64(3) {
				r := registry.New(registry.Each(sema.Observe(metrics)))
				metrics.AddRegistry(r)
				acquire(t, r.Semaphore("db", n+1, "why"), 1)
			}
		}, map[string]float64{clash: 2, `sema_permits_capacity{backend="process",semaphore="db"}`: 1}},
		{"of two backends, whose series differ", func(t *testing.T, metrics *prom.Collector) {
			client := fleet.New(memstore.New())
			t.Cleanup(func() { client.Close(context.Background(), fleet.CloseAbandon) })
			remote, err := client.Semaphore("db", 7)
			if err != nil {
				t.Fatal(err)
			}
			r := registry.New()
			metrics.AddRegistry(r)
			r.Add("db", remote, "why")
			metrics.Add("db", sema.New(3, sema.Name("db")))
		}, map[string]float64{
			clash: -1,
			`sema_name_clashes{backend="fleet",semaphore="db"}`:       1, // the events of both have that name
			`sema_permits_capacity{backend="process",semaphore="db"}`: 3,
			`sema_permits_capacity{backend="fleet",semaphore="db"}`:   7,
		}},
		{"of the same gate in two registries, which is none", func(t *testing.T, metrics *prom.Collector) {
			r := registry.New()
			metrics.AddRegistry(r)
			metrics.Add("db", r.Semaphore("db", 3, "why"))
		}, map[string]float64{clash: -1, `sema_permits_capacity{backend="process",semaphore="db"}`: 3}},
		{"of a group of keys and a semaphore", func(t *testing.T, metrics *prom.Collector) {
			r := registry.New(registry.Each(sema.Observe(metrics)))
			metrics.AddRegistry(r)
			k := group.NewKeyed(3, sema.Name("db"), sema.Observe(metrics))
			metrics.Add("db", k)
			acquire(t, k.Of("a"), 2)
			acquire(t, r.Semaphore("db", 10, "why"), 1)
		}, map[string]float64{clash: 1, `sema_permits_in_use{backend="process",semaphore="db"}`: 1}},
		{"of an exported name and an observed one", func(t *testing.T, metrics *prom.Collector) {
			acquire(t, sema.New(1, sema.Name("db"), sema.Observe(metrics)), 1).Release() // before it is exported
			s := sema.New(10, sema.Name("pg"), sema.Observe(metrics))
			metrics.Add("db", s)
			acquire(t, s, 1)
			acquire(t, sema.New(1, sema.Name("db"), sema.Observe(metrics)), 1).Release()
		}, map[string]float64{clash: 1, `sema_permits_in_use{backend="process",semaphore="db"}`: 1}},
		{"of the names in events", func(t *testing.T, metrics *prom.Collector) {
			for _, name := range []string{"db-read", "db"} {
				s := sema.New(10, sema.Name("pg"), sema.Observe(metrics))
				metrics.Add(name, s)
				acquire(t, s, 1)
			}
		}, map[string]float64{
			clash: 1,
			`sema_permits_in_use{backend="process",semaphore="db"}`:      1,
			`sema_permits_in_use{backend="process",semaphore="db-read"}`: 1,
		}},
		{"of a name and that for the rest", func(t *testing.T, metrics *prom.Collector) {
			for i := range 102 {
				acquire(t, sema.New(1, sema.Name(fmt.Sprint("user-", i)), sema.Observe(metrics)), 1).Release()
			}
			metrics.Add("other", sema.New(5, sema.Name("other"), sema.Observe(metrics)))
		}, map[string]float64{
			`sema_name_clashes{backend="process",semaphore="other"}`:     1,
			`sema_permits_capacity{backend="process",semaphore="other"}`: 5,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			metrics := prom.New()
			metrics.Add("mail", sema.New(4))
			test.setUp(t, metrics)
			for range 2 { // the first scrape must not spoil the next one
				series := gather(t, metrics)
				wantSeries(t, series, map[string]float64{`sema_permits_capacity{backend="process",semaphore="mail"}`: 4})
				for name, want := range test.want {
					if got := valueOf(series[name]); got != want {
						t.Errorf("%s is %v, want %v", name, got, want)
					}
				}
			}
		})
	}
}

func TestCollector_AddPanicsIfTheNameIsInUse(t *testing.T) {
	t.Parallel()
	gates := []any{sema.New(1), group.NewKeyed(1, sema.Name("mail"))}
	for i, first := range gates {
		for j, second := range gates {
			metrics := prom.New()
			metrics.Add("mail", first)
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("gate %d has the name of gate %d", j, i)
					}
				}()
				if i == j {
					second = map[bool]any{true: sema.New(1), false: group.NewKeyed(1)}[i == 0]
				}
				metrics.Add("mail", second)
			}()
		}
	}
}

// TestCollector_ClassesStayBoundedWhenTheirGateReturns registers a gate again and again, each
// time with other classes.
func TestCollector_ClassesStayBoundedWhenTheirGateReturns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		add  func(metrics *prom.Collector, round int) (use func(class string) sema.Gate)
	}{
		{"a queue", func(metrics *prom.Collector, _ int) func(string) sema.Gate {
			q := wfq.New(1000, sema.Name("api"), sema.Observe(metrics))
			metrics.Add("api", q)
			return func(class string) sema.Gate { return q.Class(class) }
		}},
		{"keys", func(metrics *prom.Collector, _ int) func(string) sema.Gate {
			k := group.NewKeyed(1, sema.Name("api"), sema.Observe(metrics))
			metrics.Add("api", k)
			return func(key string) sema.Gate { return k.Of(key) }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			metrics := prom.New(prom.MaxClasses(5))
			for round := range 10 {
				use := test.add(metrics, round)
				for class := range 8 {
					defer acquire(t, use(fmt.Sprintf("%d-%d", round, class)), 1).Release()
				}
				if n := namesIn(gather(t, metrics), "class"); len(n) > 6 {
					t.Fatalf("after %d registrations the classes are %v, want 5 and other", round+1, n)
				}
				if !metrics.Remove("api") {
					t.Fatal("it was not there")
				}
				if round%2 == 0 {
					gather(t, metrics)
				}
				acquire(t, sema.New(1, sema.Name(fmt.Sprint("user-", round)), sema.Observe(metrics)), 1).Release()
			}
		})
	}
}

// A countedGate counts how often its statistics are read.
type countedGate struct {
	sema.Gate
	read *atomic.Int64
}

func (g countedGate) Stats() sema.Stats {
	g.read.Add(1)
	return sema.Stats{}
}

// TestCollector_EventsReadNoOtherLimits checks that registrations and events cost the same
// however many limits there are: they read the statistics of none of them.
func TestCollector_EventsReadNoOtherLimits(t *testing.T) {
	t.Parallel()
	metrics := prom.New(prom.MaxNames(1))
	r := registry.New(registry.Each(sema.Observe(metrics)))
	metrics.AddRegistry(r)
	var read atomic.Int64
	for i := range 100 {
		r.Add(fmt.Sprint("limit-", i), countedGate{sema.New(1), &read}, "why")
	}
	read.Store(0)
	for i := range 100 {
		named := sema.New(1, sema.Name(fmt.Sprint("gate-", i)), sema.Observe(metrics))
		metrics.Add(fmt.Sprint("added-", i), named)
		acquire(t, named, 1).Release()
		acquire(t, sema.New(1, sema.Name(fmt.Sprint("user-", i)), sema.Observe(metrics)), 1).Release()
		acquire(t, r.Semaphore(fmt.Sprint("db-", i), 1, "why"), 1).Release()
	}
	if n := read.Load(); n != 0 {
		t.Errorf("the statistics of other limits were read %d times", n)
	}
	// The series of the events are found nevertheless, under the name that was added.
	wantSeries(t, gather(t, metrics), map[string]float64{
		`sema_hold_seconds{backend="process",semaphore="added-7"}`: 1,
		`sema_hold_seconds{backend="process",semaphore="db-7"}`:    1,
	})
}

// TestCollector_KeysHaveTheirRejectionsAtTheName checks that all that happens to a key counts
// for the name before it, also for keys beyond the bound, and for those that were used before
// the group was added.
func TestCollector_KeysHaveTheirRejectionsAtTheName(t *testing.T) {
	t.Parallel()
	metrics := prom.New(prom.MaxClasses(2))
	k := group.NewKeyed(1, sema.Name("mail"), sema.Observe(metrics))
	acquire(t, k.Of("early"), 1).Release()
	metrics.Add("mail", k)
	gather(t, metrics)
	var users sync.WaitGroup
	for _, key := range []string{"early", "a", "b", "c", "d"} {
		users.Go(func() {
			s := k.Of(key)
			defer acquire(t, s, 1).Release()
			if _, err := s.TryAcquire(t.Context(), 1); err == nil {
				t.Error("two permits of one")
			}
			if _, err := s.Acquire(t.Context(), 2); err == nil {
				t.Error("two permits of one")
			}
		})
	}
	users.Wait()
	series := gather(t, metrics)
	wantSeries(t, series, map[string]float64{
		`sema_acquire_rejections_total{backend="process",reason="full",semaphore="mail"}`:      5,
		`sema_acquire_rejections_total{backend="process",reason="too-large",semaphore="mail"}`: 5,
		`sema_acquires_total{backend="process",outcome="rejected",semaphore="mail"}`:           10,
	})
	if n := namesIn(series, "semaphore"); len(n) != 1 {
		t.Errorf("semaphores %v, want mail", n)
	}
}

func TestCollector_KeysHaveHeadOfQueueAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := prom.New(prom.MaxClasses(1))
		k := group.NewKeyed(1, sema.Name("mail"), sema.Observe(metrics))
		metrics.Add("mail", k)
		var waiters sync.WaitGroup
		defer waiters.Wait()
		for _, key := range []string{"a", "b", "c"} {
			held := acquire(t, k.Of(key), 1)
			waiters.Go(func() { acquire(t, k.Of(key), 1).Release() })
			time.Sleep(10 * time.Second)
			defer held.Release()
		}
		wantSeries(t, gather(t, metrics), map[string]float64{
			`sema_head_of_queue_age_seconds{backend="process",semaphore="mail"}`:                     30,
			`sema_class_head_of_queue_age_seconds{backend="process",class="a",semaphore="mail"}`:     30,
			`sema_class_head_of_queue_age_seconds{backend="process",class="other",semaphore="mail"}`: 20,
		})
	})
}
