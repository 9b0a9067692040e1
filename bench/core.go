package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

// coreScenarios returns the scenarios for the root package.
func coreScenarios() []scenario {
	allocs := func(r row) float64 { return r.AllocsOp }
	noAllocs := func(name string) target {
		return target{impl: name, limit: 0.01, value: allocs, unit: "allocs/op"}
	}
	bytesPerWaiter := func(r row) float64 { return r.BytesOp }
	const ours, weighted, unfair = "sema.Semaphore", "sema.Weighted", "sema.Semaphore Unfair"
	mix := []int64{1, 5, 25}
	whenYielding := []target{
		{impl: ours, rival: "x/sync", limit: 0.8},
		{impl: ours, rival: "channel", limit: 1.1},
		noAllocs(ours),
	}
	ofSemaphores := []contender{semaSemaphore, semaWeighted, xsync, channel}
	return slices.Concat([]scenario{
		{
			name: "uncontended", about: "one goroutine, acquire + release of a bare counter",
			impls: alone(semaWeighted, bareAtomics, xsync, channel, channelNoContext, mutexCond),
			targets: []target{
				{impl: weighted, rival: "bare CAS + add", limit: 1.6},
				{impl: weighted, rival: "x/sync", limit: 0.5},
				{impl: weighted, rival: "channel", limit: 0.2},
			},
		},
		{
			name: "uncontended-permit", about: "one goroutine, a permit that can be released only once",
			impls: alone(semaSemaphore, xsync, xsyncHandle, failsafe, puddlePool, semaStriped, semaSpin),
			targets: []target{
				{impl: ours, rival: "x/sync", limit: 1.5},
				{impl: ours, rival: "x/sync + handle", limit: 0.5},
				noAllocs(ours),
			},
		},
		{
			name: "gates", about: "one goroutine, a permit of a custom gate",
			impls:   alone(semaSemaphore, gateOfIssuer, gateOfLeases),
			targets: []target{{impl: "gate on sema.Issuer", rival: ours, limit: 2}, noAllocs("gate on sema.Issuer")},
		},
		{
			name: "counters", about: "one goroutine, cost of the counters of Stats, compared with an older commit (--against)",
			impls:   append(alone(semaSemaphore), older(ours, "uncontended-permit")...),
			targets: targetsAgainst(target{impl: ours, rival: olderName, limit: 1, difference: true}),
		},
		{
			name: "observed", about: "one goroutine, an observer that does nothing",
			impls:   alone(semaSemaphore, semaObserved, semaTimed),
			targets: []target{{impl: "sema.Semaphore observed", rival: "sema.Semaphore + 2 × time.Since", limit: 1.5}, noAllocs("sema.Semaphore observed")},
		},
		{
			name: "two-cores", about: "2 goroutines that never wait",
			impls:   contended(2, 64, 1_000_000, shortHold, semaStriped, semaSemaphore, semaWeighted, xsync, channel),
			targets: []target{{impl: "sema.Striped", rival: "x/sync", limit: 0.6}},
		},
		{
			name: "64-on-8", about: "64 goroutines on 8 permits, cancellable context, short hold, no queue at the start",
			impls: contended(64, 8, 640_000, shortHold, append(ofSemaphores, mutexCond, failsafe, puddlePool, errGroup)...),
			targets: []target{
				{impl: ours, rival: "x/sync", limit: 0.1},
				{impl: ours, rival: "channel", limit: 0.4},
				noAllocs(ours),
			},
		},
		{
			name: "64-on-8-queued", about: "the same, started with a queue: fair semaphores convoy",
			impls: queued(64, 8, 256_000, shortHold, semaSemaphore, semaWeighted, semaUnfair, xsync, channel),
			targets: []target{
				{impl: ours, rival: "x/sync", limit: 0.6},
				{impl: ours, rival: "channel", limit: 1.2},
				{impl: unfair, rival: "x/sync", limit: 0.1},
				noAllocs(ours), noAllocs(unfair),
			},
		},
		{
			name: "64-on-8-yield", about: "64 goroutines on 8 permits, the holder yields",
			impls:   contended(64, 8, 128_000, runtime.Gosched, append(ofSemaphores, pairsThatPark)...),
			targets: whenYielding,
		},
		{
			name: "1024-on-8-yield", about: "1024 goroutines on 8 permits, the holder yields",
			impls:   contended(1024, 8, 409_600, runtime.Gosched, ofSemaphores...),
			targets: whenYielding,
		},
		{
			name: "cancel-storm", about: "100,000 waiters with one context, all cancelled",
			impls: storm(true),
			targets: []target{
				{impl: ours, rival: "x/sync", limit: 0.6},
				{impl: ours, rival: "x/sync", limit: 1, value: bytesPerWaiter, unit: "bytes per waiter"},
				{impl: "sema.Semaphore, 2nd storm", limit: 0.001, value: allocs, unit: "allocs/waiter"},
			},
		},
		{
			name: "cancel-storm-own", about: "100,000 waiters, each with a context of its own, all cancelled",
			impls:   storm(false),
			targets: []target{{impl: ours, rival: "x/sync", limit: 0.8}},
		},
		{
			name: "weighted-mix", about: "64 goroutines acquire 1, 5 or 25 of 100, cancellable context, short hold",
			impls:   contendedWeighted(64, 100, 640_000, mix, shortHold, semaSemaphore, semaWeighted, semaUnfair, xsync),
			targets: []target{{impl: ours, rival: "x/sync", limit: 0.6}},
		},
		{
			name: "weighted-mix-yield", about: "the same, the holder yields: nearly every acquire waits",
			impls:   contendedWeighted(64, 100, 128_000, mix, runtime.Gosched, semaSemaphore, semaWeighted, semaUnfair, xsync, pairsThatPark),
			targets: []target{{impl: ours, rival: "x/sync", limit: 0.6}},
		},
	}, waitScenarios(), spinScenarios(), batchScenarios())
}

// shortHold takes about ten nanoseconds.
func shortHold() {
	for i := range 16 {
		_ = held + i
	}
}

var held int

func noHold() {}

// alone runs each contender in one goroutine.
func alone(contenders ...contender) []impl {
	const ops = 2_000_000
	var impls []impl
	for _, c := range contenders {
		impls = append(impls, impl{c.name, func() sample {
			do := c.make(8)
			ctx := context.Background()
			return measure(ops, func() { do(ctx, ops, 1, noHold) })
		}})
	}
	return impls
}

func contended(goroutines int, capacity int64, ops int, hold func(), contenders ...contender) []impl {
	return contendedWeighted(goroutines, capacity, ops, []int64{1}, hold, contenders...)
}

// contendedWeighted runs ops operations in goroutines that share one cancellable
// context. Goroutine i always uses weights[i%len(weights)].
func contendedWeighted(goroutines int, capacity int64, ops int, weights []int64, hold func(), contenders ...contender) []impl {
	var impls []impl
	for _, c := range contenders {
		impls = append(impls, impl{c.name, func() sample {
			do := c.make(capacity)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			each := ops / goroutines
			start, done := gatedGoroutines(goroutines, func(i int) { do(ctx, each, weights[i%len(weights)], hold) })
			return measure(each*goroutines, func() { start(); done() })
		}})
	}
	return impls
}

// queued runs like contended, but holds all permits until all goroutines are
// queued.
func queued(goroutines int, capacity int64, ops int, hold func(), contenders ...contender) []impl {
	var impls []impl
	for _, c := range contenders {
		impls = append(impls, impl{c.name, func() sample {
			do := c.make(capacity)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			free, released := occupy(ctx, do, capacity)
			each := ops / goroutines
			start, done := gatedGoroutines(goroutines, func(int) { do(ctx, each, 1, hold) })
			start()
			waitUntilIdle() // all are queued
			s := measure(each*goroutines, func() { free(); done() })
			released()
			return s
		}})
	}
	return impls
}

// occupy acquires all permits and holds them until free is called. released waits until
// they are released.
func occupy(ctx context.Context, do pairs, capacity int64) (free, released func()) {
	var occupied, holders sync.WaitGroup
	freed := make(chan struct{})
	for range capacity {
		occupied.Add(1)
		holders.Go(func() { do(ctx, 1, 1, func() { occupied.Done(); <-freed }) })
	}
	occupied.Wait()
	return func() { close(freed) }, holders.Wait
}

// gatedGoroutines creates n goroutines that run f once start is called, so that
// their creation is not measured. done waits for them.
func gatedGoroutines(n int, f func(i int)) (start, done func()) {
	gate := make(chan struct{})
	var ready, finished sync.WaitGroup
	for i := range n {
		ready.Add(1)
		finished.Go(func() { ready.Done(); <-gate; f(i) })
	}
	ready.Wait()
	return func() { close(gate) }, finished.Wait
}

// storm blocks 100,000 goroutines on a semaphore without permits and cancels
// them: all by one context, or each by its own. Blocking and cancelling are
// timed, the pause between them is not.
func storm(shared bool) []impl {
	blockOnSemaphore := func() func(context.Context) {
		s := sema.New(0)
		return func(ctx context.Context) { s.Acquire(ctx, 1) } //semavet:ignore it has no permits
	}
	var second func(context.Context)
	impls := []impl{
		{"sema.Semaphore", func() sample { return stormOnce(shared, blockOnSemaphore()) }},
		{"sema.Semaphore, 2nd storm", func() sample {
			second = blockOnSemaphore()
			stormOnce(shared, second)
			return stormOnce(shared, second)
		}},
		{"x/sync", func() sample {
			s := semaphore.NewWeighted(1)
			must(s.Acquire(context.Background(), 1))                                  //semavet:ignore no permit is ever free
			return stormOnce(shared, func(ctx context.Context) { s.Acquire(ctx, 1) }) //semavet:ignore no permit is ever free
		}},
		{"no queue: receive from Done", func() sample { return stormOnce(shared, func(ctx context.Context) { <-ctx.Done() }) }},
		{"no queue: select", func() sample {
			return stormOnce(shared, func(ctx context.Context) {
				select {
				case <-ctx.Done():
				case <-make(chan struct{}):
				}
			})
		}},
	}
	if shared {
		impls = append(impls, impl{"no queue: a channel each", func() sample { return stormOnce(shared, waitForFirst()) }})
	}
	return impls
}

// waitForFirst returns a function with which goroutines wait for the end of the context
// that they share: the first for the context, the others on a channel each, to which the
// first one sends. It is the lower bound of a semaphore, which has to wake its waiters
// one by one.
func waitForFirst() func(context.Context) {
	var mu sync.Mutex
	var channels []chan struct{}
	return func(ctx context.Context) {
		own := make(chan struct{}, 1)
		mu.Lock()
		channels = append(channels, own)
		first := len(channels) == 1
		mu.Unlock()
		if !first {
			<-own
			return
		}
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range channels {
			c <- struct{}{}
		}
	}
}

func stormOnce(shared bool, acquire func(context.Context)) sample {
	const waiters = 100_000
	ctx, cancel := context.WithCancel(context.Background())
	contexts := make([]context.Context, waiters)
	cancels := make([]context.CancelFunc, waiters)
	for i := range contexts {
		contexts[i], cancels[i] = ctx, func() {}
		if !shared {
			contexts[i], cancels[i] = context.WithCancel(context.Background())
			contexts[i].Done() // created lazily; not to be measured
		}
	}
	start, done := gatedGoroutines(waiters, func(i int) { acquire(contexts[i]) })
	// A collection scans 100,000 stacks. One collection more or less during a
	// storm would account for most of the difference. Turning them off favours
	// the implementation that allocates more.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, blocked, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	start()
	elapsed := waitUntilIdle().Sub(began)
	runtime.ReadMemStats(&blocked)
	began = time.Now()
	cancel()
	for _, c := range cancels {
		c()
	}
	done()
	elapsed += time.Since(began)
	runtime.ReadMemStats(&after)
	return sample{ops: waiters, elapsed: elapsed, mallocs: after.Mallocs - before.Mallocs,
		bytes: float64(blocked.TotalAlloc-before.TotalAlloc) / waiters}
}

// waitUntilIdle waits until the process has used hardly any processor time for
// 20 ms, that is, until all its goroutines have parked. It returns the last
// time at which the process was busy. Rivals do not report their number of
// waiters.
func waitUntilIdle() time.Time {
	const idle, poll = 20 * time.Millisecond, 500 * time.Microsecond
	busy, used := time.Now(), processorTime()
	for {
		time.Sleep(poll)
		now := time.Now()
		if u := processorTime(); u-used > poll/4 {
			busy, used = now, u
		} else if now.Sub(busy) > idle {
			return busy
		} else {
			used = u
		}
	}
}
