package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

// batchScenarios compare acquires of a whole batch with acquires of its units one by one.
// An operation is one unit. The weight that contenders are called with is the number of
// units in a batch.
func batchScenarios() []scenario {
	var all []scenario
	for _, n := range []int64{8, 64} {
		all = append(all, scenario{
			name: fmt.Sprintf("batch-%d", n), about: fmt.Sprintf("one goroutine, units in batches of %d, all held together and each released for itself", n),
			impls:   contendedWeighted(1, n, 1_024_000, []int64{n}, noHold, splitTogether, singlesTogether, wholeBatch, xsyncBatch, xsyncSinglesTogether),
			targets: []target{{impl: wholeBatch.name, rival: singlesTogether.name, limit: 0.5}},
		})
	}
	// Goroutines that acquire the units of a batch one by one and hold them together can
	// deadlock: each holds some and waits for the others. So these use them in turn.
	inTurn := func(name, about string, goroutines int, capacity int64, ops int, hold func()) scenario {
		return scenario{
			name: "batch-8-" + name, about: about + ", units in batches of 8, used and released in turn",
			impls: contendedWeighted(goroutines, capacity, ops, []int64{8}, hold, splitInTurn, semaSingles, wholeBatch, xsyncBatch, xsyncSingles),
			targets: []target{
				{impl: splitInTurn.name, rival: semaSingles.name, limit: 1},
				{impl: wholeBatch.name, rival: semaSingles.name, limit: 1},
			},
		}
	}
	return append(all,
		inTurn("two-cores", "2 goroutines that never wait", 2, 64, 1_024_000, shortHold),
		inTurn("waiting", "64 goroutines on 16 permits, the holder yields", 64, 16, 128_000, runtime.Gosched),
	)
}

var (
	// splitTogether acquires a batch, divides it, and releases the parts.
	splitTogether = contender{"sema.Semaphore, Split", func(capacity int64) pairs {
		s := sema.New(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			units := make([]sema.Permit, batch)
			for range n / int(batch) {
				rest, err := s.Acquire(ctx, batch)
				must(err)
				for i := range units[1:] {
					units[i], rest, err = rest.Split(1)
					must(err)
				}
				units[batch-1] = rest
				for _, unit := range units {
					hold()
					unit.Release()
				}
			}
		}
	}}

	singlesTogether = contender{"sema.Semaphore, one by one", func(capacity int64) pairs {
		s := sema.New(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			units := make([]sema.Permit, batch)
			for range n / int(batch) {
				var err error
				for i := range units {
					units[i], err = s.Acquire(ctx, 1)
					must(err)
				}
				for _, unit := range units {
					hold()
					unit.Release()
				}
			}
		}
	}}

	// splitInTurn acquires a batch and releases each unit after its use.
	splitInTurn = contender{"sema.Semaphore, Split", func(capacity int64) pairs {
		s := sema.New(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			for range n / int(batch) {
				rest, err := s.Acquire(ctx, batch)
				must(err)
				for range batch - 1 {
					var unit sema.Permit
					unit, rest, err = rest.Split(1)
					must(err)
					hold()
					unit.Release()
				}
				hold()
				rest.Release()
			}
		}
	}}

	// wholeBatch acquires and releases a batch at once.
	wholeBatch = contender{"sema.Semaphore, whole", func(capacity int64) pairs {
		s := sema.New(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			for range n / int(batch) {
				p, err := s.Acquire(ctx, batch)
				must(err)
				for range batch {
					hold()
				}
				p.Release()
			}
		}
	}}

	xsyncBatch = contender{"x/sync, batch", func(capacity int64) pairs {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			for range n / int(batch) {
				must(s.Acquire(ctx, batch))
				for range batch {
					hold()
					s.Release(1)
				}
			}
		}
	}}

	xsyncSinglesTogether = contender{"x/sync, one by one", func(capacity int64) pairs {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, n int, batch int64, hold func()) {
			for range n / int(batch) {
				for range batch {
					must(s.Acquire(ctx, 1))
				}
				for range batch {
					hold()
					s.Release(1)
				}
			}
		}
	}}

	semaSingles  = inUnits("sema.Semaphore, one by one", semaSemaphore)
	xsyncSingles = inUnits("x/sync, one by one", xsync)
)

// inUnits returns the contender, which acquires single units whatever the batch.
func inUnits(name string, c contender) contender {
	return contender{name, func(capacity int64) pairs {
		do := c.make(capacity)
		return func(ctx context.Context, n int, _ int64, hold func()) { do(ctx, n, 1, hold) }
	}}
}
