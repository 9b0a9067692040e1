//go:build !race

package classic_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// sync.Pool drops a quarter of its puts under the race detector, so these tests run in a
// pass without it.

func TestClassic_UncontendedAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, l, s := classic.NewBuffer[int](8), classic.NewRWLock(classic.FairRW), classic.NewTurnstile()
	batch := make([]int, 8)
	for name, pair := range map[string]func(){
		"Buffer":           func() { b.Put(ctx, 1); b.Take(ctx) },
		"Buffer, tries":    func() { b.TryPut(1); b.TryTake(); b.TryTake() },
		"Buffer, batches":  func() { b.PutAll(ctx, batch); b.TakeUpTo(ctx, batch) },
		"TakeAny":          func() { b.TryPut(1); classic.TakeAny(ctx, b) },
		"RWLock, readers":  func() { p, _ := l.Reader().Acquire(ctx, 1); p.Release() },
		"RWLock, a writer": func() { p, _ := l.Writer().Acquire(ctx, 1); p.Release() },
		"Turnstile":        func() { s.Pass(ctx) },
	} {
		if n := testing.AllocsPerRun(1000, pair); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestClassic_WaitingAllocatesNothing lets two goroutines wait for each other, so that nearly
// every call waits.
func TestClassic_WaitingAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, opts := range map[string][]sema.SharedOption{"": nil, "MaxWait": {sema.MaxWait(time.Hour)}} {
		to, from := classic.NewBuffer[int](1, opts...), classic.NewBuffer[int](1, opts...)
		r := classic.NewRendezvous[int](opts...)
		for kind, c := range map[string]struct{ ours, theirs func() }{
			"Buffer":     {func() { to.Put(ctx, 1); from.Take(ctx) }, func() { to.Take(ctx); from.Put(ctx, 1) }},
			"Rendezvous": {func() { r.Meet(ctx, 1) }, func() { r.Meet(ctx, 2) }},
		} {
			const rounds = 2000
			var wg sync.WaitGroup
			wg.Go(func() {
				for range rounds + 1 {
					c.theirs()
				}
			})
			if n := testing.AllocsPerRun(rounds, c.ours); n > 0.05 { // a garbage collection empties the pools
				t.Errorf("%s %s: %v allocations", kind, name, n)
			}
			wg.Wait()
		}
	}
}
