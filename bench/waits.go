package main

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// waitScenarios measure how long acquires wait, beside the throughput: an order that lets
// callers overtake saves goroutine switches, and those overtaken wait longer.
func waitScenarios() []scenario {
	const ours, unfair, lifo = "sema.Semaphore", "sema.Semaphore Unfair", "sema.Semaphore LIFO"
	p50 := func(r row) float64 { return r.P50 }
	p999 := func(r row) float64 { return r.P999 }
	orders := []contender{semaSemaphore, semaUnfair, semaLIFO, xsync, channel}
	closed := load{goroutines: 64, capacity: 8, ops: 128_000, every: 1, queued: true}
	microseconds, yields := closed, closed
	microseconds.hold, yields.hold = microsecond, runtime.Gosched
	throughput := []target{{impl: ours, rival: "x/sync", limit: 1}, {impl: unfair, rival: ours, limit: 1}}
	return []scenario{
		{
			name: "waits-microsecond", about: "waits of 64 goroutines on 8 permits, hold of about a microsecond, started with a queue",
			impls: timed(microseconds, orders...), targets: throughput,
		},
		{
			name: "waits-yield", about: "waits of 64 goroutines on 8 permits, the holder yields",
			impls: timed(yields, orders...), targets: throughput,
		},
		{
			name: "waits-busy", about: "waits of callers that arrive at random for 8 permits, 90 % of which are held; virtual time",
			impls: openLoop("0.9", "0s"),
			targets: []target{
				{impl: lifo, rival: ours, limit: 1, value: p50, unit: "p50"},
				{impl: ours, rival: lifo, limit: 1, value: p999, unit: "p99.9"},
			},
		},
		{
			name: "waits-overload", about: "waits of the callers served of those that arrive for 120 % of 8 permits and give up after 20 holds; virtual time",
			impls:   openLoop("1.2", "20ms"),
			targets: []target{{impl: lifo, rival: ours, limit: 0.2, value: p50, unit: "p50"}},
		},
	}
}

// microsecond takes about a microsecond.
func microsecond() { must(compute(750)) }

// A load is a number of goroutines that acquire, hold and release in a loop.
type load struct {
	goroutines int
	capacity   int64
	ops        int    // in total
	every      int    // times one of so many acquires: a clock reading takes as long as a short hold
	queued     bool   // holds all permits until all goroutines are queued
	hold       func() // called by the holder
}

// timed returns how long acquires wait under a load, from the call until they are granted.
func timed(l load, contenders ...contender) []impl {
	var impls []impl
	for _, c := range contenders {
		impls = append(impls, impl{c.name, func() sample { return l.run(c.make(l.capacity)) }})
	}
	return impls
}

func (l load) run(do pairs) sample {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batches := l.ops / l.goroutines / l.every
	all := make([][]time.Duration, l.goroutines)
	epoch := time.Now()
	start, done := gatedGoroutines(l.goroutines, func(i int) {
		took := make([]time.Duration, 0, batches)
		var began time.Duration
		granted := func() {
			took = append(took, time.Since(epoch)-began)
			l.hold()
		}
		for range batches {
			began = time.Since(epoch)
			do(ctx, 1, 1, granted)
			do(ctx, l.every-1, 1, l.hold)
		}
		all[i] = took
	})
	ops := batches * l.every * l.goroutines
	if !l.queued {
		return measure(ops, func() { start(); done() }).withWaits(slices.Concat(all...))
	}
	free, released := occupy(ctx, do, l.capacity)
	start()
	waitUntilIdle()
	s := measure(ops, func() { free(); done() })
	released()
	for i := range all {
		all[i] = all[i][1:] // waited for the start of the load
	}
	return s.withWaits(slices.Concat(all...))
}
