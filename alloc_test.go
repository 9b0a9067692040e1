//go:build !race

package sema_test

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// sync.Pool drops a quarter of its puts under the race detector, so these tests run
// in a pass without it.

func TestAcquire_UncontendedAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, striped, weighted := sema.New(8), sema.NewStriped(8), sema.NewWeighted(8)
	sampled := sema.New(8, sema.Observe(quietSampler{}))
	counter := sema.NewCounter(8, 8)
	var spin sema.Spin
	for name, pair := range map[string]func(){
		"Semaphore": func() { p, _ := s.Acquire(ctx, 1); p.Release() },
		"Sampled":   func() { p, _ := sampled.Acquire(ctx, 1); p.Release() },
		"Try":       func() { p, _ := s.TryAcquire(ctx, 3); p.Release() },
		"TryAll":    func() { p, _ := s.TryAcquireFree(ctx); p.Release() },
		"Split":     func() { p, _ := s.Acquire(ctx, 2); a, b, _ := p.Split(1); a.Release(); b.Release() },
		"Several": func() {
			a, _ := s.Acquire(ctx, 1)
			b, _ := s.Acquire(ctx, 1)
			c, _ := s.Acquire(ctx, 1)
			b.Release()
			a.Release()
			c.Release()
		},
		"Striped":  func() { p, _ := striped.Acquire(ctx, 1); p.Release() },
		"Weighted": func() { weighted.Acquire(ctx, 1); weighted.Release(1) },
		"Counter":  func() { counter.Wait(ctx, 1); counter.Post(1) },
		"Spin":     func() { spin.Acquire(ctx); spin.Release() },
	} {
		if n := testing.AllocsPerRun(1000, pair); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestAcquire_BlockedAllocatesNothing passes permits between goroutines, so that nearly
// every acquire waits.
func TestAcquire_BlockedAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, g := range map[string]sema.Gate{
		"Fair":           sema.New(1),
		"Unfair":         sema.New(1, sema.Unfair),
		"LIFO":           sema.New(1, sema.LIFO),
		"MaxWait":        sema.New(1, sema.MaxWait(time.Hour)),
		"Striped":        sema.NewStriped(1),
		"Weight 3 of 4":  sema.New(4),
		"Many followers": sema.New(1),
	} {
		weight, goroutines := int64(1), 4
		switch name {
		case "Weight 3 of 4":
			weight = 3
		case "Many followers":
			goroutines = 64
		}
		const each = 2000
		run := func() {
			var working sync.WaitGroup
			for range goroutines {
				working.Go(func() {
					for range each {
						p, err := g.Acquire(ctx, weight)
						if err != nil {
							t.Error(err)
						}
						runtime.Gosched()
						p.Release()
					}
				})
			}
			working.Wait()
		}
		run() // fills the pools
		perOp := mallocs(run) / float64(goroutines*each)
		if perOp > 0.02 { // allowance for the goroutines of run and for pools that the collector emptied
			t.Errorf("%s: %.3f allocations per acquire", name, perOp)
		}
	}
}

func TestAcquire_CancelledAllocatesNothing(t *testing.T) {
	s := sema.New(1)
	held := mustAcquire(t, s, 1)
	defer held.Release()
	const waiters = 500
	storm := func() {
		ctx, cancel := context.WithCancel(context.Background())
		var waiting sync.WaitGroup
		for range waiters {
			waiting.Go(func() { s.Acquire(ctx, 1) })
		}
		waitersReach(t, waiters, func() int { return s.Stats().Waiters })
		cancel()
		waiting.Wait()
	}
	idle := func() { // measures what the goroutines of a storm allocate
		ctx := context.Background()
		var waiting sync.WaitGroup
		for range waiters {
			waiting.Go(func() { s.TryAcquire(ctx, 0) })
		}
		waiting.Wait()
	}
	least := math.Inf(1)
	for range 5 { // the first fills the pools; goroutines may need stacks
		least = min(least, (mallocs(storm)-mallocs(idle))/waiters)
	}
	if least > 0.05 {
		t.Errorf("%.2f allocations per cancelled wait", least)
	}
}

// mallocs returns the number of allocations of f. The garbage collector is off
// meanwhile, because it empties pools.
func mallocs(f func()) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}
