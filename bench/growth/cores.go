package growth

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sema-go/sema"
)

// coreCurves show what becomes of semaphores that many cores use at the same time. The
// machine has two, so one curve is measured with more threads than cores, and the other is
// computed by a model.
func coreCurves() []curve {
	sizes := []int{1, 2, 4, 8, 16, 32, 64}
	measured := func(name string, rival bool, pair func() func()) contender {
		return contender{name, sizes, func(n int) float64 { return pairsOnThreads(n, 1, pair()) }, rival}
	}
	const wide = 1 << 20 // permits: no caller waits
	here := hardware{operation: 4, between: 1.6, transfer: transferTime()}
	server := hardware{operation: 4, between: 1.6, transfer: 60}
	modelled := func(m modelledPair) contender {
		return contender{m.name, sizes, func(n int) float64 { return server.cost(n, m.pair) }, m.rival}
	}
	var two []string
	for _, m := range modelledPairs {
		two = append(two, fmt.Sprintf("%s %.0f", m.name, here.cost(2, m.pair)))
	}
	ctx := context.Background()
	waiting := func(name string, rival bool, pair func(permits int64) func()) contender {
		return contender{name, sizes, func(n int) float64 { return pairsOnThreads(n, 2, pair(int64(n))) }, rival}
	}
	return []curve{
		{
			name: "threads-measured", title: "An acquire and a release, more threads than cores (measured)", size: "GOMAXPROCS", unit: "ns",
			note: "From 1 to 2, the cores begin to share a cache line. One goroutine for each thread, all on one semaphore with permits for all. No contender collapses when a thread is suspended in the middle of an operation.",
			runs: []contender{
				measured("sema.Semaphore", false, func() func() { s := sema.New(wide); return pairsOf(s) }),
				measured("sema.Weighted", false, func() func() { s := sema.NewWeighted(wide); return func() { must(s.Acquire(ctx, 1)); s.Release(1) } }),
				measured("sema.Striped", false, func() func() { s := sema.NewStriped(wide); return pairsOf(s) }),
				measured("x/sync", true, func() func() {
					s := semaphore.NewWeighted(wide)
					return func() { must(s.Acquire(ctx, 1)); s.Release(1) }
				}),
			},
		},
		{
			name: "threads-waiting", title: "An acquire and a release, twice as many callers as permits, more threads than cores (measured)", size: "GOMAXPROCS", unit: "ns",
			note: "Two goroutines and one permit for each thread; a holder yields once. Every second acquire waits, so this is the cost of the queue and of waking.",
			runs: []contender{
				waiting("sema.Semaphore", false, func(n int64) func() { s := sema.New(n); return yieldingPairsOf(s) }),
				waiting("sema.Weighted", false, func(n int64) func() {
					s := sema.NewWeighted(n)
					return func() { must(s.Acquire(ctx, 1)); runtime.Gosched(); s.Release(1) }
				}),
				waiting("sema.Striped", false, func(n int64) func() { s := sema.NewStriped(n); return yieldingPairsOf(s) }),
				waiting("x/sync", true, func(n int64) func() {
					s := semaphore.NewWeighted(n)
					return func() { must(s.Acquire(ctx, 1)); runtime.Gosched(); s.Release(1) }
				}),
			},
		},
		{
			name: "cores-modelled", title: "An acquire and a release on each of many cores (modelled)", size: "cores", unit: "ns",
			note: fmt.Sprintf("Computed, not measured. A core needs 4 ns for an atomic operation on a cache line that it owns and 1.6 ns between accesses, about what [one goroutine](benchmarks.md#a-process) needs in a run of its own. "+
				"A line takes 60 ns to another core, as it does between the cores of a server; the owner uses it until a request arrives. "+
				"On this machine a line takes %.0f ns to the other core, and with that the model computes for two cores: %s. The measured table differs: a core may keep a contended line for longer, and operations that fail are repeated. "+
				"Neither is modelled, so trust the shape of a curve more than its height. "+
				"The cores of a `Semaphore`, a `Weighted` and x/sync take turns at one line: together they do not get faster with more cores. "+
				"A `Striped` has two cells for each core, so its cost depends only on how many cores share a cell.", here.transfer, strings.Join(two, ", ")),
			runs: []contender{modelled(modelledPairs[0]), modelled(modelledPairs[1]), modelled(modelledPairs[2]), modelled(modelledPairs[3])},
		},
	}
}

// A modelledPair is what an acquire and a release do to cache lines. Line 0 is shared by all
// cores.
type modelledPair struct {
	name  string
	rival bool
	pair  func(seed, core, cores int) []access
}

var modelledPairs = []modelledPair{
	{"sema.Semaphore", false, func(seed, core, cores int) []access {
		slot := 1 + scatter(seed, core, 8*cores)
		return []access{{0, 1}, {slot, 1}, {slot, 1}, {0, 1}}
	}},
	{"sema.Weighted", false, func(int, int, int) []access { return []access{{0, 1}, {0, 1}} }},
	{"sema.Striped", false, func(seed, core, cores int) []access {
		cell := scatter(seed, core, 2*cores)
		return []access{{cell, 2}, {cell, 2}}
	}},
	{"x/sync", true, func(int, int, int) []access { return []access{{0, 3}, {0, 3}} }}, // lock, change, unlock
}

// transferTime returns how long a cache line takes from one core of this machine to another:
// two goroutines increment a number in turns. It is the least of several rounds, since one in
// which a thread is suspended takes milliseconds.
func transferTime() float64 {
	const rounds, turns = 50, 2_000
	var number atomic.Int64
	least := time.Hour
	play := func(parity int64) {
		for {
			n := number.Load()
			if n >= turns {
				return
			}
			if n&1 == parity {
				number.Store(n + 1)
			}
		}
	}
	for range rounds {
		number.Store(0)
		var other sync.WaitGroup
		ready := make(chan struct{})
		other.Go(func() { close(ready); play(1) })
		<-ready
		began := time.Now()
		play(0)
		other.Wait()
		least = min(least, time.Since(began))
	}
	return float64(least) / turns
}

// pairsOf returns a function that acquires and releases a permit.
func pairsOf(g sema.Gate) func() {
	return func() {
		p, err := g.Acquire(context.Background(), 1)
		must(err)
		p.Release()
	}
}

// yieldingPairsOf returns a function that holds a permit while others run.
func yieldingPairsOf(g sema.Gate) func() {
	return func() {
		p, err := g.Acquire(context.Background(), 1)
		must(err)
		runtime.Gosched()
		p.Release()
	}
}

// pairsOnThreads returns the time of a pair when some goroutines for each of n threads do
// pairs, in processor time of all cores that the machine has.
func pairsOnThreads(n, each int, pair func()) float64 {
	const total = 2_000_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	var all sync.WaitGroup
	began := time.Now()
	goroutines := n * each
	for range goroutines {
		all.Go(func() {
			for range total / goroutines {
				pair()
			}
		})
	}
	all.Wait()
	return float64(time.Since(began)) / float64(total/goroutines*goroutines) * float64(min(n, runtime.NumCPU()))
}
