package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bohde/codel"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/go-chi/chi/v5/middleware"
	"golang.org/x/sync/semaphore"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// The overload scenarios offer a service more requests than it can serve, in an open loop:
// requests arrive at random, whatever happens to those before them. They run in virtual time,
// so that the policy is measured and not the machine.
const (
	serviceSlots    = 16
	serviceMean     = 10 * time.Millisecond // log-normal, sigma 0.5
	requestDeadline = 200 * time.Millisecond
	waitBudget      = 100 * time.Millisecond
	overloadFor     = 10 * time.Second
)

func init() { roles["overload"] = overloadRole }

// A guard admits a request, or returns why not. done ends the request.
type guard func(ctx context.Context) (done func(), err error)

type namedGuard struct {
	name string
	make func() guard
}

var errRejected = errors.New("rejected")

// guards all get the same number of slots and the same wait budget.
var guards = []namedGuard{
	{"sema/admit", func() guard {
		c := admit.New(admit.Config{Queue: wfq.New(serviceSlots), MaxWait: waitBudget, Logger: slog.New(slog.DiscardHandler)})
		return func(ctx context.Context) (func(), error) {
			a, err := c.Admit(ctx, admit.Request{})
			return func() { a.Done(admit.OK) }, err
		}
	}},
	{"sema/admit, CoDel", func() guard {
		q := wfq.New(serviceSlots)
		q.Default(wfq.Share{Order: wfq.CoDel})
		c := admit.New(admit.Config{Queue: q, MaxWait: waitBudget, Logger: slog.New(slog.DiscardHandler)})
		return func(ctx context.Context) (func(), error) {
			a, err := c.Admit(ctx, admit.Request{})
			return func() { a.Done(admit.OK) }, err
		}
	}},
	{"x/sync, deadline only", func() guard {
		s := semaphore.NewWeighted(serviceSlots)
		return func(ctx context.Context) (func(), error) {
			return func() { s.Release(1) }, s.Acquire(ctx, 1)
		}
	}},
	{"x/sync, wait budget", func() guard {
		s := semaphore.NewWeighted(serviceSlots)
		return func(ctx context.Context) (func(), error) {
			ctx, cancel := context.WithTimeout(ctx, waitBudget)
			defer cancel()
			return func() { s.Release(1) }, s.Acquire(ctx, 1)
		}
	}},
	{"chi Throttle", func() guard {
		throttle := middleware.ThrottleBacklog(serviceSlots, 10_000, waitBudget)
		return throughHandler(throttle)
	}},
	{"failsafe bulkhead", func() guard {
		b := bulkhead.NewBuilder[any](serviceSlots).WithMaxWaitTime(waitBudget).Build()
		return func(ctx context.Context) (func(), error) {
			return b.ReleasePermit, b.AcquirePermitWithMaxWait(ctx, waitBudget)
		}
	}},
	{"bohde/codel", func() guard {
		l := codel.New(codel.Options{MaxPending: 10_000, MaxOutstanding: serviceSlots, TargetLatency: 5 * time.Millisecond})
		return func(ctx context.Context) (func(), error) { return l.Release, l.Acquire(ctx) }
	}},
}

// throughHandler makes a guard of a middleware, whose handler runs while the request does.
func throughHandler(wrap func(http.Handler) http.Handler) guard {
	type call struct{ admitted, ended chan struct{} }
	type key struct{}
	handler := wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(key{}).(*call)
		close(c.admitted)
		<-c.ended
	}))
	return func(ctx context.Context) (func(), error) {
		c := &call{make(chan struct{}), make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(context.WithValue(ctx, key{}, c))
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-c.admitted:
			return func() { close(c.ended); <-served }, nil
		case <-served:
			return func() {}, errRejected
		}
	}
}

// An overloadResult is what one run of an overload measured.
type overloadResult struct {
	Good     int             // served within the deadline
	Admitted []time.Duration // durations of admitted requests, from arrival to end
	Most     int             // in flight at once
}

func overloadScenarios() (all []scenario) {
	for _, load := range []float64{2, 5} {
		targets := []target{
			{impl: guards[0].name, limit: float64(serviceMean) / serviceSlots / 0.95, value: func(r row) float64 { return r.NsOp }, unit: "ns a request in time"},
			{impl: guards[0].name, limit: float64(waitBudget) + 1.2*serviceP99(), value: func(r row) float64 { return r.P99 }, unit: "ns, p99 of admitted requests"},
		}
		for _, g := range guards[2:] {
			// Guards serve different requests of the same trace, so that they differ by some per mille.
			targets = append(targets, target{impl: guards[0].name, rival: g.name, limit: 1.01})
		}
		all = append(all, scenario{
			name:  fmt.Sprintf("admit-%v-times-capacity", load),
			about: fmt.Sprintf("%v times as many requests as %d slots can serve, %d µs each: time for each request that is served before its deadline; virtual time", load, serviceSlots, serviceMean.Microseconds()/serviceSlots),
			impls: overloaded(load), targets: targets,
		})
	}
	return all
}

// serviceP99 returns the p99 of the service times.
func serviceP99() float64 {
	const sigma, z99 = 0.5, 2.3263
	return float64(serviceMean) * math.Exp(sigma*z99-sigma*sigma/2)
}

func overloaded(load float64) (impls []impl) {
	for _, g := range guards {
		seed := 0
		impls = append(impls, impl{g.name, func() sample {
			seed++
			var r overloadResult
			runInBubble(&r, "overload", g.name, strconv.FormatFloat(load, 'g', -1, 64), strconv.Itoa(seed))
			if r.Most > serviceSlots {
				panic(fmt.Sprintf("%s: %d requests in flight", g.name, r.Most))
			}
			s := sample{ops: max(1, r.Good), elapsed: overloadFor}
			slices.Sort(r.Admitted)
			if n := len(r.Admitted); n > 0 {
				s.p99 = float64(r.Admitted[n*99/100])
			}
			return s
		}})
	}
	return impls
}

// overloadRole runs one overload in virtual time, and prints the result.
func overloadRole(args []string) {
	i := slices.IndexFunc(guards, func(g namedGuard) bool { return g.name == args[0] })
	load, err := strconv.ParseFloat(args[1], 64)
	must(err)
	seed, err := strconv.ParseUint(args[2], 10, 64)
	must(err)
	printFromBubble(func() any { return offer(rand.New(rand.NewPCG(seed, 1)), load, guards[i].make()) })
}

// offer sends requests at load times the capacity.
func offer(rng *rand.Rand, load float64, admit guard) (r overloadResult) {
	gap := float64(serviceMean) / serviceSlots / load
	var mu sync.Mutex
	running := 0
	var wg sync.WaitGroup
	start := time.Now()
	for time.Since(start) < overloadFor {
		const sigma = 0.5
		service := time.Duration(float64(serviceMean) * math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2))
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), requestDeadline)
			defer cancel()
			arrived := time.Now()
			done, err := admit(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			running++
			r.Most = max(r.Most, running)
			mu.Unlock()
			time.Sleep(service)
			mu.Lock()
			running--
			took := time.Since(arrived)
			r.Admitted = append(r.Admitted, took)
			if took <= requestDeadline && time.Since(start) <= overloadFor {
				r.Good++
			}
			mu.Unlock()
			done()
		})
		time.Sleep(max(1, time.Duration(rng.ExpFloat64()*gap)))
	}
	wg.Wait()
	return r
}
