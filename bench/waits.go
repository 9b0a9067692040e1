package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

// waitScenarios measure how long acquires wait, beside the throughput: an order that lets
// callers overtake saves goroutine switches, and those overtaken wait longer.
func waitScenarios() []scenario {
	const ours, unfair, lifo, rival = "sema.Semaphore", "sema.Semaphore Unfair", "sema.Semaphore LIFO", "x/sync"
	p50 := func(r row) float64 { return r.P50 }
	p99 := func(r row) float64 { return r.P99 }
	p999 := func(r row) float64 { return r.P999 }
	orders := []contender{semaSemaphore, semaUnfair, semaLIFO, xsync, channel}
	closed := load{goroutines: 64, capacity: 8, ops: 128_000, every: 1, queued: true}
	microseconds, yields := closed, closed
	microseconds.hold, yields.hold = microsecond, runtime.Gosched
	return []scenario{
		{
			name: "waits-microsecond", about: "waits of 64 goroutines on 8 permits, hold of about a microsecond, started with a queue",
			impls: timed(microseconds, orders...),
			targets: []target{
				{impl: ours, rival: rival, limit: 1},
				{impl: ours, rival: rival, limit: 1, value: p99, unit: "p99"},
				{impl: unfair, rival: ours, limit: 1},
				{impl: ours, rival: unfair, limit: 1, value: p999, unit: "p99.9"},
			},
		},
		{
			name: "waits-yield", about: "waits of 64 goroutines on 8 permits, the holder yields",
			impls: timed(yields, orders...),
			targets: []target{
				{impl: ours, rival: rival, limit: 1, value: p99, unit: "p99"},
				{impl: unfair, rival: ours, limit: 1},
			},
		},
		{
			name: "waits-busy", about: "waits of callers that arrive at random for 8 permits, hold 1 ms, 90 % of the capacity used",
			impls:   openLoop(0.9, 0),
			targets: []target{{impl: lifo, rival: ours, limit: 1, value: p50, unit: "p50"}, {impl: ours, rival: lifo, limit: 1, value: p999, unit: "p99.9"}},
		},
		{
			name: "waits-overload", about: "waits of callers that are served: they arrive for 120 % of the capacity and give up after 20 ms",
			impls:   openLoop(1.2, 20*time.Millisecond),
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

// The callers of an open loop arrive at random, whatever happens to those before them, as
// the requests of a service do.
const (
	loopPermits = 8
	loopHold    = time.Millisecond
	loopFor     = time.Second
)

// A user acquires a permit, calls work and releases. It returns the error of ctx if that
// ends first.
type user func(ctx context.Context, work func()) error

var users = []struct {
	name string
	make func(capacity int64) user
}{
	{semaSemaphore.name, semaphoreUser(sema.Fair)},
	{semaUnfair.name, semaphoreUser(sema.Unfair)},
	{semaLIFO.name, semaphoreUser(sema.LIFO)},
	{xsync.name, func(capacity int64) user {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, work func()) error {
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			work()
			s.Release(1)
			return nil
		}
	}},
	{channel.name, func(capacity int64) user {
		slots := make(chan struct{}, capacity)
		return func(ctx context.Context, work func()) error {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			work()
			<-slots
			return nil
		}
	}},
}

func semaphoreUser(order sema.Order) func(int64) user {
	return func(capacity int64) user {
		s := sema.New(capacity, order)
		return func(ctx context.Context, work func()) error {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				return err
			}
			work()
			p.Release()
			return nil
		}
	}
}

// openLoop returns how long those callers wait that are served. Together they need the
// permits for the fraction utilisation of the time. Each gives up after timeout; 0 means
// never. In each round all implementations get the same arrivals.
func openLoop(utilisation float64, timeout time.Duration) []impl {
	var impls []impl
	for _, u := range users {
		seed := uint64(0)
		impls = append(impls, impl{u.name, func() sample {
			seed++
			return arrive(rand.New(rand.NewPCG(seed, 0)), utilisation, timeout, u.make(loopPermits))
		}})
	}
	return impls
}

func arrive(rng *rand.Rand, utilisation float64, timeout time.Duration, use user) sample {
	gap := float64(loopHold) / loopPermits / utilisation
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for at := time.Duration(0); at < loopFor; at += time.Duration(rng.ExpFloat64() * gap) {
		// Yielding until then is exact, and has the timers of the holders fire in time. A
		// sleep would return up to a millisecond late.
		for time.Since(start) < at {
			runtime.Gosched()
		}
		wg.Go(func() {
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if timeout != 0 {
				ctx, cancel = context.WithTimeout(ctx, timeout)
			}
			defer cancel()
			use(ctx, func() {
				wait := time.Since(start) - at // also if the caller was started late
				time.Sleep(loopHold)
				mu.Lock()
				all = append(all, wait)
				mu.Unlock()
			})
		})
	}
	wg.Wait()
	return sample{ops: len(all), elapsed: time.Since(start)}.withWaits(all)
}
