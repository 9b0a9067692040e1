package main

import (
	"context"
	"math"
	"sync"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// rateScenarios compare package rate with golang.org/x/time/rate.
func rateScenarios() []scenario {
	const ours, allow = "sema/rate", "x/time/rate Allow"
	granted := []target{{impl: ours, rival: allow, limit: 0.6}, {impl: ours, limit: 0.01, value: func(r row) float64 { return r.AllocsOp }, unit: "allocs/op"}}
	return []scenario{
		{
			name: "rate-try", about: "one goroutine, a permit of a rate without waiting, the bucket is always full",
			impls:   []impl{{ours, func() sample { return rateTries(rate.New(1<<40, time.Second)) }}, {allow, func() sample { return xrateTries(xrate.NewLimiter(1<<40, 1<<40)) }}},
			targets: granted,
		},
		{
			name: "rate-try-burst", about: "the same, from a burst that hardly returns meanwhile",
			impls: []impl{
				{ours, func() sample { return rateTries(rate.New(1, time.Second, rate.Burst(tries))) }},
				{allow, func() sample { return xrateTries(xrate.NewLimiter(1, tries)) }},
			},
			targets: granted,
		},
		{
			name: "rate-try-rejected", about: "one goroutine, a rate without free permits rejects it; sema/rate returns when to retry",
			impls: []impl{{ours, rateRejections}, {allow, xrateRejections}},
		},
		{
			name: "rate-error", about: "8 goroutines acquire from 10,000 permits a second for 10 s: error of the rate",
			impls:   []impl{{ours, func() sample { return shareRate(newRate().Acquire).error() }}, {"x/time/rate Wait", func() sample { return shareRate(waitOf(newXRate())).error() }}},
			targets: []target{{impl: ours, limit: 1000, value: func(r row) float64 { return r.Count }, unit: "ppm"}},
		},
		{
			name: "rate-jain", about: "8 goroutines acquire from 10,000 permits a second for 10 s: how much Jain's index of fairness is below 1",
			impls:   []impl{{ours, func() sample { return shareRate(newRate().Acquire).jain() }}, {"x/time/rate Wait", func() sample { return shareRate(waitOf(newXRate())).jain() }}},
			targets: []target{{impl: ours, limit: 10_000, value: func(r row) float64 { return r.Count }, unit: "ppm"}},
		},
	}
}

// tries is the number of tries of a run.
const tries = 2_000_000

func rateTries(g *rate.Gate) sample {
	ctx := context.Background()
	return measure(tries, func() {
		for range tries {
			if _, err := g.TryAcquire(ctx, 1); err != nil {
				panic(err)
			}
		}
	})
}

func xrateTries(l *xrate.Limiter) sample {
	return measure(tries, func() {
		for range tries {
			if !l.Allow() {
				panic("not allowed")
			}
		}
	})
}

func rateRejections() sample {
	g, ctx := rate.New(1, time.Hour), context.Background()
	_, err := g.TryAcquire(ctx, 1) //semavet:ignore permits of a rate are spent
	must(err)
	return measure(tries, func() {
		for range tries {
			if _, err := g.TryAcquire(ctx, 1); err == nil {
				panic("granted")
			}
		}
	})
}

func xrateRejections() sample {
	l := xrate.NewLimiter(xrate.Every(time.Hour), 1)
	l.Allow()
	return measure(tries, func() {
		for range tries {
			if l.Allow() {
				panic("allowed")
			}
		}
	})
}

const (
	sharedRate = 10_000 // permits a second
	sharing    = 8      // goroutines
	sharedFor  = 10 * time.Second
)

func newRate() *rate.Gate      { return rate.New(sharedRate, time.Second, rate.Burst(100)) }
func newXRate() *xrate.Limiter { return xrate.NewLimiter(sharedRate, 100) }

func waitOf(l *xrate.Limiter) func(context.Context, int64) (sema.Permit, error) {
	return func(ctx context.Context, n int64) (sema.Permit, error) { return sema.Permit{}, l.WaitN(ctx, int(n)) }
}

// A division is how many permits each goroutine got.
type division struct {
	got     [sharing]float64
	elapsed time.Duration
}

// shareRate lets goroutines acquire for sharedFor.
func shareRate(acquire func(context.Context, int64) (sema.Permit, error)) (d division) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedFor)
	defer cancel()
	start := time.Now()
	var wg sync.WaitGroup
	for i := range d.got {
		wg.Go(func() {
			for {
				if _, err := acquire(ctx, 1); err != nil { //semavet:ignore permits of a rate are spent
					return
				}
				d.got[i]++
			}
		})
	}
	wg.Wait()
	d.elapsed = time.Since(start)
	return d
}

func (d division) total() (sum float64) {
	for _, n := range d.got {
		sum += n
	}
	return sum
}

// error returns the difference from the rate in parts per million, without the burst.
func (d division) error() sample {
	want := sharedRate*d.elapsed.Seconds() + 100
	return sample{ops: int(d.total()), elapsed: d.elapsed, count: 1e6 * math.Abs(d.total()-want) / want}
}

func (d division) jain() sample {
	squares := 0.0
	for _, n := range d.got {
		squares += n * n
	}
	return sample{ops: int(d.total()), elapsed: d.elapsed, count: 1e6 * (1 - d.total()*d.total()/(sharing*squares))}
}
