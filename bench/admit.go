package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/sony/gobreaker/v2"
	xrate "golang.org/x/time/rate"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func init() { suites["admit"] = admitScenarios }

// admitScenarios compare package admit with the libraries that it replaces.
func admitScenarios() []scenario {
	const ours, sum = "sema/admit", "x/time/rate + gobreaker + failsafe bulkhead"
	return []scenario{
		{
			name: "admit-uncontended", about: "one goroutine, a request is admitted and done: rate, breaker, limit in flight",
			impls: []impl{{ours, func() sample { return admissions(admit.Config{Limit: &admit.AIMD{Max: 200}}) }}, {sum, admissionsOfRivals}},
			targets: []target{
				{impl: ours, rival: sum, limit: 0.5},
				{impl: ours, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"},
			},
		},
		{
			name: "admit-rejected", about: "one goroutine, a request is rejected because all permits are in use",
			impls: []impl{{ours, rejections}},
			targets: []target{
				{impl: ours, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"},
			},
		},
	}
}

const (
	admissionsPerRun = 1_000_000
	fastRate         = 1 << 40 // permits per second: the rate never rejects
	inFlight         = 100
)

// newController returns a controller with a rate, a breaker and a queue.
func newController(c admit.Config) *admit.Controller {
	c.Queue, c.Rate, c.MaxWait = wfq.New(inFlight), rate.New(fastRate, time.Second), time.Second
	c.Breaker = admit.NewBreaker(admit.BreakerConfig{SlowCall: time.Second})
	c.Logger = slog.New(slog.DiscardHandler)
	return admit.New(c)
}

func admissions(config admit.Config) sample {
	c, ctx := newController(config), context.Background()
	return measure(admissionsPerRun, func() {
		for range admissionsPerRun {
			a, err := c.Admit(ctx, admit.Request{})
			must(err)
			a.Done(admit.OK)
		}
	})
}

// admissionsOfRivals does the same with three libraries, in the order of the checks of a
// controller.
func admissionsOfRivals() sample {
	limiter := xrate.NewLimiter(fastRate, fastRate)
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{Interval: 10 * time.Second, BucketPeriod: time.Second})
	bulk := bulkhead.New[any](inFlight)
	ctx := context.Background()
	return measure(admissionsPerRun, func() {
		for range admissionsPerRun {
			done, err := breaker.Allow()
			must(err)
			if !limiter.Allow() {
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
