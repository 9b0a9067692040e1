package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/sony/gobreaker/v2"
	xrate "golang.org/x/time/rate"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/bench/overload"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func init() { suites["admit"] = admitScenarios }

// admitScenarios compare package admit with the libraries that it replaces.
func admitScenarios() []scenario {
	const ours, sum = "sema/admit", "x/time/rate + gobreaker + failsafe bulkhead"
	everything := admit.Config{Limit: &admit.AIMD{Max: 200}}
	none := target{impl: ours, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"}
	return []scenario{
		{
			name: "admit-uncontended", turns: admissionTurns,
			about:   "one goroutine, a request is admitted and done: breaker, rate, fair queue, limit that adapts; processor time",
			impls:   []impl{{ours, func() sample { return admissions(everything, 0, false) }}, {sum, func() sample { return admissionsOfRivals(0) }}},
			targets: []target{{impl: ours, rival: sum, limit: 0.5}, none},
		},
		{
			name: "admit-budget", turns: admissionTurns,
			about: "the same with a budget for what requests cost; the others have a second x/time/rate; processor time",
			impls: []impl{
				{ours, func() sample { return admissions(everything, 10, false) }},
				{"sema/admit, settled", func() sample { return admissions(everything, 10, true) }},
				{sum, func() sample { return admissionsOfRivals(10) }},
			},
			targets: []target{{impl: ours, rival: sum, limit: 0.5}, none},
		},
		{
			name: "admit-rejected", about: "one goroutine, a request is rejected because all permits are in use",
			impls: []impl{
				{ours, rejections},
				{"failsafe bulkhead", rejectionsOfBulkhead},
			},
			targets: []target{none},
		},
		{
			name:  "admit-shed",
			about: fmt.Sprintf("5 times as many requests as %d slots can serve, for 2 s in real time: how long Admit takes to reject one, on average if it does so at once", overload.Slots),
			impls: shedding(),
			targets: []target{
				{impl: overload.Plain, limit: 1e6, value: func(r row) float64 { return r.P99 }, unit: "ns, p99"},
				{impl: overload.All, limit: 1e6, value: func(r row) float64 { return r.P99 }, unit: "ns, p99"},
			},
		},
	}
}

// Without other load, the processor time of a goroutine that never waits is the time elapsed.
// With other load, it is what the time elapsed would be without.
const (
	admissionsPerRun = 250_000 // so many that the garbage of a run is collected in it
	admissionTurns   = 5
	fastRate         = 1 << 40 // permits per second: the rate never rejects
	inFlight         = 100
)

// newController returns a controller with a rate, a breaker and a queue.
func newController(c admit.Config) *admit.Controller {
	c.Budget = rate.New(fastRate, time.Second)
	c.Queue, c.Rate, c.MaxWait = wfq.New(inFlight), rate.New(fastRate, time.Second), time.Second
	c.Breaker = admit.NewBreaker(admit.BreakerConfig{SlowCall: time.Second})
	c.Logger = slog.New(slog.DiscardHandler)
	return admit.New(c)
}

// admissions admits requests of a cost, and settles some of it if that is wanted.
func admissions(config admit.Config, cost int64, settle bool) sample {
	c, ctx := newController(config), context.Background()
	return measureIn(true, admissionsPerRun, func() {
		for range admissionsPerRun {
			a, err := c.Admit(ctx, admit.Request{Cost: cost})
			must(err)
			if settle {
				a.Settle(cost - 1)
			}
			a.Done(admit.OK)
		}
	})
}

// admissionsOfRivals does the same with three libraries, in the order of the checks of a
// controller. A cost needs a second limiter, which cannot settle it.
func admissionsOfRivals(cost int) sample {
	limiter, budget := xrate.NewLimiter(fastRate, fastRate), xrate.NewLimiter(fastRate, fastRate)
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{Interval: 10 * time.Second, BucketPeriod: time.Second})
	bulk := bulkhead.New[any](inFlight)
	ctx := context.Background()
	return measureIn(true, admissionsPerRun, func() {
		for range admissionsPerRun {
			done, err := breaker.Allow()
			must(err)
			if !limiter.Allow() || cost > 0 && !budget.AllowN(time.Now(), cost) {
				panic("over the rate")
			}
			must(bulk.AcquirePermit(ctx))
			bulk.ReleasePermit()
			done(nil)
		}
	})
}

func rejections() sample {
	c := admit.New(admit.Config{Queue: wfq.New(1), Logger: slog.New(slog.DiscardHandler)})
	ctx := context.Background()
	a, err := c.Admit(ctx, admit.Request{})
	must(err)
	defer a.Done(admit.OK)
	return measure(admissionsPerRun, func() {
		for range admissionsPerRun {
			if _, err := c.TryAdmit(ctx, admit.Request{}); err == nil {
				panic("admitted")
			}
		}
	})
}

func rejectionsOfBulkhead() sample {
	bulk, ctx := bulkhead.New[any](1), context.Background()
	must(bulk.AcquirePermit(ctx))
	defer bulk.ReleasePermit()
	return measure(admissionsPerRun, func() {
		for range admissionsPerRun {
			if bulk.TryAcquirePermit() {
				panic("admitted")
			}
		}
	})
}

// shedFor is how long requests are shed in real time.
const shedFor = 2 * time.Second

// shedding returns what rejects at once instead of after a wait.
func shedding() (impls []impl) {
	for _, name := range []string{overload.Plain, overload.All, "failsafe adaptive limiter"} {
		impls = append(impls, impl{name, func() sample { return shed(overload.ByName(name)) }})
	}
	return impls
}

// shed offers requests in real time, and returns how long their rejections took, with what
// they have waited before.
func shed(i overload.Implementation) sample {
	g := i.Make(nil)
	var mu sync.Mutex
	var times []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for _, r := range (overload.Load{For: shedFor, Phases: []overload.Phase{{Load: 5}}}).Trace(1) {
		time.Sleep(time.Until(start.Add(r.At)))
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), overload.Deadline)
			defer cancel()
			asked := time.Now()
			done, err := g.Admit(ctx, "", 1)
			took := time.Since(asked)
			if err == nil {
				time.Sleep(r.Service)
				done(overload.OK)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, took)
		})
	}
	wg.Wait()
	if g.Stop != nil {
		g.Stop()
	}
	return rejectionTimes(times)
}

// rejectionTimes returns the sample of rejections. A few requests are queued, and rejected when
// their wait budget ends: the quantiles have them, but the mean is of the others. Otherwise it
// would show how many they are, and not how long a rejection takes.
func rejectionTimes(all []time.Duration) sample {
	atOnce := slices.DeleteFunc(slices.Clone(all), func(took time.Duration) bool { return took >= overload.WaitBudget/2 })
	return sampleOf(atOnce).withWaits(all)
}
