package main

import (
	"context"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/otel"
	"github.com/sema-go/sema/x/prom"
)

func init() { suites["metrics"] = metricsScenarios }

// metricsScenarios measures what an exporter costs: a pair that does not wait, and a
// hand-off, beside those without observers.
func metricsScenarios() []scenario {
	const none, withProm, withOtel = "sema.Semaphore", "sema.Semaphore, x/prom", "sema.Semaphore, x/otel"
	exporting := func(o sema.Observer) func(int64) pairs {
		return semaphorePairs(sema.Name("bench"), sema.Observe(o))
	}
	traces, err := otel.New()
	must(err)
	exported, traced := contender{withProm, exporting(prom.New())}, contender{withOtel, exporting(traces)}
	everyHold := contender{"sema.Semaphore, x/prom, every hold", exporting(prom.New(prom.HoldEvery(1)))}
	class := func(name string, observe ...sema.SharedOption) contender {
		return contender{name, func(capacity int64) pairs {
			var opts []wfq.Option
			for _, o := range observe {
				opts = append(opts, o)
			}
			gate := wfq.New(capacity, append(opts, sema.Name("bench"))...).Class("a")
			return func(ctx context.Context, n int, weight int64, hold func()) {
				for range n {
					p, err := gate.Acquire(ctx, weight)
					must(err)
					hold()
					p.Release()
				}
			}
		}}
	}
	// Aim: 15 ns a pair.
	cost := func(impl, rival string) target { return target{impl: impl, rival: rival, limit: 15, difference: true} }
	return []scenario{
		{
			name: "exported-pair", about: "one goroutine, a pair that does not wait; the hold of one in 64 is measured",
			impls:   alone(semaSemaphore, exported, traced, everyHold, semaObserved),
			targets: []target{cost(withProm, none), cost(withOtel, none)},
		},
		{
			name: "exported-class", about: "one goroutine, a pair in a class of a fair queue",
			impls:   alone(class("wfq.Class"), class("wfq.Class, x/prom", sema.Observe(prom.New()))),
			targets: []target{cost("wfq.Class, x/prom", "wfq.Class")},
		},
		{
			name: "exported-wait", about: "waits of 64 goroutines on 8 permits, hold of about a microsecond; each wait is recorded",
			impls: timed(load{goroutines: 64, capacity: 8, ops: 64_000, every: 1, queued: true, hold: microsecond}, semaSemaphore, exported),
		},
	}
}
