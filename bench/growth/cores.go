package growth

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
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
		return contender{name, sizes, func(n int) float64 { return pairsOnThreads(n, pair()) }, rival}
	}
	modelled := func(name string, rival bool, steps func(core, cores int) []access) contender {
		return contender{name, sizes, func(n int) float64 { return model(n, steps) }, rival}
	}
	const wide = 1 << 20 // permits: no caller waits
	ctx := context.Background()
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
			name: "cores-modelled", title: "An acquire and a release on each of many cores (modelled)", size: "cores", unit: "ns",
			note: "Computed, not measured: each core owns a cache line for 5 ns per atomic operation, and waits 60 ns for a line that another core owns. " +
				"Operations that fail and are repeated are not modelled, so what contends is slower in reality. " +
				"The cores of a `Semaphore`, a `Weighted` and x/sync take turns at one line: together they do not get faster with more cores. " +
				"A `Striped` has two cells for each core, so its cost depends only on how many cores share a cell.",
			runs: []contender{
				modelled("sema.Semaphore", false, func(core, cores int) []access {
					slot := 1 + scatter(core, 8*cores)
					return []access{{0, 1}, {slot, 1}, {slot, 1}, {0, 1}}
				}),
				modelled("sema.Weighted", false, func(core, cores int) []access { return []access{{0, 1}, {0, 1}} }),
				modelled("sema.Striped", false, func(core, cores int) []access {
					cell := scatter(core, 2*cores)
					return []access{{cell, 2}, {cell, 2}}
				}),
				modelled("x/sync", true, func(core, cores int) []access { return []access{{0, 3}, {0, 3}} }), // lock, change, unlock
			},
		},
	}
}

// pairsOf returns a function that acquires and releases a permit.
func pairsOf(g sema.Gate) func() {
	return func() {
		p, err := g.Acquire(context.Background(), 1)
		must(err)
		p.Release()
	}
}

// pairsOnThreads returns the time of a pair when one goroutine for each of n threads does
// pairs, in processor time of all cores that the machine has.
func pairsOnThreads(n int, pair func()) float64 {
	const total = 2_000_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	var all sync.WaitGroup
	began := time.Now()
	for range n {
		all.Go(func() {
			for range total / n {
				pair()
			}
		})
	}
	all.Wait()
	return float64(time.Since(began)) / float64(total/n*n) * float64(min(n, runtime.NumCPU()))
}

// An access is a number of atomic operations on a cache line.
type access struct{ line, operations int }

// scatter selects a line for a core as the address of a stack does: at random, but always
// the same.
func scatter(core, lines int) int {
	return rand.New(rand.NewPCG(uint64(core), uint64(lines))).IntN(lines)
}

// model simulates cores that repeat their steps, and returns the mean time of a pair.
func model(cores int, steps func(core, cores int) []access) float64 {
	const (
		own      = 5.0  // ns of an atomic operation on a line that the core owns
		transfer = 60.0 // ns until another core owns a line
		between  = 5.0  // ns of other work in each step
		pairs    = 2000 // by each core
	)
	type line struct {
		owner int
		free  float64 // when its last operation ends
	}
	lines := map[int]*line{}
	random := rand.New(rand.NewPCG(1, 2))
	program := make([][]access, cores)
	at := make([]float64, cores) // the clock of each core
	next := make([]int, cores)   // its next step
	done := make([]int, cores)   // pairs
	for c := range cores {
		program[c] = steps(c, cores)
		at[c] = random.Float64() * 100
	}
	var sum float64
	for finished := 0; finished < cores; {
		c := -1 // the core whose step is first
		for k := range cores {
			if done[k] < pairs && (c < 0 || at[k] < at[c]) {
				c = k
			}
		}
		step := program[c][next[c]]
		l := lines[step.line]
		if l == nil {
			l = &line{owner: -1}
			lines[step.line] = l
		}
		began := at[c]
		start := max(at[c], l.free)
		if l.owner != c {
			start += transfer
			l.owner = c
		}
		l.free = start + own*float64(step.operations)
		at[c] = l.free + between
		sum += at[c] - began
		if next[c]++; next[c] == len(program[c]) {
			next[c] = 0
			if done[c]++; done[c] == pairs {
				finished++
			}
		}
	}
	return sum / float64(cores*pairs)
}
