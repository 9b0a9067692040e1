package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// wfqScenarios measure the fair queue beside a semaphore, which shares by order of arrival.
func wfqScenarios() []scenario {
	const ours, plain = "sema/wfq", "sema.Semaphore"
	allocs := func(r row) float64 { return r.AllocsOp }
	ppm := func(r row) float64 { return r.Count }
	return []scenario{
		{
			name: "wfq-uncontended", about: "one goroutine, acquire and release in a class of a fair queue",
			impls: alone(semaClassByName, semaClass, semaSemaphore),
			targets: []target{
				{impl: semaClassByName.name, rival: plain, limit: 2.5}, {impl: semaClassByName.name, limit: 0.01, value: allocs, unit: "allocs/op"},
				{impl: ours, rival: plain, limit: 2.5}, {impl: ours, limit: 0.01, value: allocs, unit: "allocs/op"},
			},
		},
		{
			name: "wfq-yield", about: "64 goroutines share 8 permits of a class, the holder yields",
			impls:   contended(64, 8, 128_000, runtime.Gosched, semaClass, semaSemaphore, xsync),
			targets: []target{{impl: ours, rival: "x/sync", limit: 1}},
		},
		{
			name: "wfq-classes", about: "20,000 goroutines wait for 8 permits, in 10,000 classes or in 10",
			impls:   []impl{{"10,000 classes", func() sample { return manyClasses(10_000) }}, {"10 classes", func() sample { return manyClasses(10) }}},
			targets: []target{{impl: "10,000 classes", rival: "10 classes", limit: 3}},
		},
		{
			name: "wfq-weights", about: "classes of weights 1:2:4 with holds of 10, 1 and 3 ms, for 3 s: how much Jain's index of permit-seconds per weight is below 1",
			impls: []impl{
				{ours, func() sample { return compete(threeWeights, classGates(threeWeights)) }},
				{plain, func() sample { return compete(threeWeights, oneGate) }},
			},
			targets: []target{{impl: ours, limit: 10_000, value: ppm, unit: "ppm"}},
		},
		{
			name: "wfq-hog", about: "one tenant with 200 callers and nine with 10 each, for 3 s: how much Jain's index of permit-seconds is below 1",
			impls: []impl{
				{ours, func() sample { return compete(hogAndTenants(), classGates(hogAndTenants())) }},
				{plain, func() sample { return compete(hogAndTenants(), oneGate) }},
			},
			targets: []target{{impl: ours, limit: 20_000, value: ppm, unit: "ppm"}},
		},
		{
			name: "wfq-forget", about: "memory left by a million classes that were used once",
			impls:   []impl{{ours, forgetClasses}},
			targets: []target{{impl: ours, limit: 1 << 20, value: ppm, unit: "bytes"}},
		},
	}
}

var semaClass = contender{"sema/wfq", func(capacity int64) pairs {
	class := wfq.New(capacity).Class("a")
	return func(ctx context.Context, n int, weight int64, hold func()) {
		for range n {
			p, err := class.Acquire(ctx, weight)
			must(err)
			hold()
			p.Release()
		}
	}
}}

// semaClassByName looks the class up for each acquire, as a server does with the tenant of
// a request.
var semaClassByName = contender{"sema/wfq, class by name", func(capacity int64) pairs {
	q := wfq.New(capacity)
	return func(ctx context.Context, n int, weight int64, hold func()) {
		for range n {
			p, err := q.Class("a").Acquire(ctx, weight)
			must(err)
			hold()
			p.Release()
		}
	}
}}

// manyClasses lets the same number of goroutines compete in few or many classes. Each
// yields while it holds its permit, so that the others wait.
func manyClasses(n int) sample {
	const goroutines, rounds = 20_000, 15
	q, ctx := wfq.New(8), context.Background()
	classes := make([]*wfq.Class, n)
	for i := range classes {
		classes[i] = q.Class(fmt.Sprint(i))
	}
	start, done := gatedGoroutines(goroutines, func(i int) {
		for range rounds {
			p, err := classes[i%n].Acquire(ctx, 1)
			must(err)
			runtime.Gosched()
			p.Release()
		}
	})
	return measure(goroutines*rounds, func() { start(); done() })
}

// A competitor is a class with callers that acquire again at once.
type competitor struct {
	name    string
	weight  int64
	callers int
	hold    time.Duration
}

var threeWeights = []competitor{{"a", 1, 20, 10 * time.Millisecond}, {"b", 2, 20, time.Millisecond}, {"c", 4, 20, 3 * time.Millisecond}}

func hogAndTenants() []competitor {
	all := []competitor{{"hog", 1, 200, 5 * time.Millisecond}}
	for i := range 9 {
		all = append(all, competitor{fmt.Sprint("tenant ", i), 1, 10, 2 * time.Millisecond})
	}
	return all
}

// classGates returns the gates of the competitors at a fair queue.
func classGates(all []competitor) func(string) sema.Gate {
	q := wfq.New(8)
	for _, c := range all {
		q.Set(c.name, wfq.Share{Weight: c.weight})
	}
	return func(name string) sema.Gate { return q.Class(name) }
}

var shared = sema.New(8)

func oneGate(string) sema.Gate { return shared }

// compete returns how much Jain's index of what the competitors used for their weights is
// below 1, in parts per million.
func compete(all []competitor, gate func(string) sema.Gate) sample {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	used, grants := make([]atomic.Int64, len(all)), atomic.Int64{}
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range all {
		g := gate(c.name)
		for range c.callers {
			wg.Go(func() {
				for {
					p, err := g.Acquire(ctx, 1)
					if err != nil {
						return
					}
					since := time.Now()
					time.Sleep(c.hold)
					used[i].Add(int64(time.Since(since)))
					grants.Add(1)
					p.Release()
				}
			})
		}
	}
	wg.Wait()
	sum, squares := 0.0, 0.0
	for i, c := range all {
		x := float64(used[i].Load()) / float64(c.weight)
		sum, squares = sum+x, squares+x*x
	}
	jain := sum * sum / (float64(len(all)) * squares)
	return sample{ops: int(grants.Load()), elapsed: time.Since(start), count: 1e6 * (1 - jain)}
}

// forgetClasses uses a million classes once and returns the memory that they leave.
func forgetClasses() sample {
	const classes = 1_000_000
	ctx := context.Background()
	before := heapAfterGC()
	q := wfq.New(8)
	s := measure(classes, func() {
		for i := range classes {
			p, err := q.Class(fmt.Sprint(i)).Acquire(ctx, 1)
			must(err)
			p.Release()
		}
	})
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s.count = float64(max(0, heapAfterGC()-before)); s.count < 1<<20 {
			break
		}
	}
	runtime.KeepAlive(q)
	return s
}

func heapAfterGC() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
