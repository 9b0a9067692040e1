package wfq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
	"github.com/sema-go/sema/wfq"
)

var ctx = context.Background()

func TestClass_Conforms(t *testing.T) {
	t.Parallel()
	traits := sematest.Traits{FIFO: true, Weights: true, Split: true}
	gates := map[string]func(t *testing.T, capacity int64) sema.Gate{
		"class": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.New(capacity).Class("a")
		},
		"queue": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.New(capacity, wfq.Aging(time.Second))
		},
		"observed": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.New(capacity, sema.Name("observed"), sema.Observe(sema.ObserverFunc(func(sema.Event) {}))).Class("a")
		},
		"diagnosed": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.New(capacity, sema.Diagnose(sema.DiagnoseFull)).Class("a")
		},
		"bounded by its share": func(t *testing.T, capacity int64) sema.Gate {
			q := wfq.New(2 * capacity)
			q.Set("a", wfq.Share{Max: capacity, Min: 1, Tier: -3, Weight: 7})
			return q.Class("a")
		},
		"over a semaphore": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.Over(sema.New(capacity), capacity).Class("a")
		},
		"over a class": func(t *testing.T, capacity int64) sema.Gate {
			return wfq.Over(wfq.New(capacity).Class("b"), capacity).Class("a")
		},
	}
	for name, create := range gates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sematest.Check(t, traits, create)
		})
	}
}

// A tenant is a class with callers that always wait.
type tenant struct {
	name    string
	callers int
	share   wfq.Share
	weight  int64         // of each permit; 0: 1
	hold    time.Duration // mean
	rest    time.Duration // between a release and the next acquire
	used    time.Duration // permit-seconds
	grants  int
}

// run lets tenants compete for the time, and returns what each used. It must be called in
// a bubble.
func run(q *wfq.Queue, d time.Duration, tenants ...*tenant) {
	end := time.Now().Add(d)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, v := range tenants {
		q.Set(v.name, v.share)
		for k := range v.callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			wg.Go(func() {
				n := max(1, v.weight)
				for {
					p, err := q.Class(v.name).Acquire(ctx, n)
					if err != nil {
						return
					}
					start := time.Now()
					time.Sleep(time.Duration(float64(v.hold) * rng.ExpFloat64()))
					mu.Lock()
					v.used += time.Duration(n) * min(time.Since(start), end.Sub(start))
					v.grants++
					mu.Unlock()
					p.Release()
					time.Sleep(v.rest)
				}
			})
		}
	}
	wg.Wait()
}

// jain returns Jain's index of fairness of what the tenants used for their weights.
func jain(tenants ...*tenant) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range tenants {
		x := float64(v.used) / float64(max(1, v.share.Weight))
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(tenants)) * squares)
}

func TestQueue_SharesPermitSecondsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := []*tenant{
			{name: "a", callers: 30, share: wfq.Share{Weight: 1}, hold: 100 * time.Millisecond},
			{name: "b", callers: 30, share: wfq.Share{Weight: 2}, hold: 10 * time.Millisecond},
			{name: "c", callers: 30, share: wfq.Share{Weight: 4}, hold: 30 * time.Millisecond},
		}
		q := wfq.New(10)
		run(q, time.Minute, tenants...)
		for _, v := range tenants {
			t.Logf("%s: weight %d, %v used in %d grants", v.name, v.share.Weight, v.used, v.grants)
		}
		if j := jain(tenants...); j < 0.99 {
			t.Errorf("Jain's index %.4f, want at least 0.99", j)
		} else {
			t.Logf("Jain's index %.5f", j)
		}
	})
}

func TestQueue_OneHogDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := []*tenant{{name: "hog", callers: 200, hold: 50 * time.Millisecond}}
		for i := range 9 {
			tenants = append(tenants, &tenant{name: fmt.Sprint("tenant", i), callers: 3, hold: 20 * time.Millisecond})
		}
		run(wfq.New(10), time.Minute, tenants...)
		for _, v := range tenants {
			t.Logf("%s: %v used in %d grants", v.name, v.used, v.grants)
		}
		if j := jain(tenants...); j < 0.98 {
			t.Errorf("Jain's index %.4f, want at least 0.98", j)
		} else {
			t.Logf("Jain's index %.5f", j)
		}
	})
}
