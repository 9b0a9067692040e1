//go:build !race

package wfq_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/sema-go/sema/wfq"
)

// sync.Pool drops a quarter of its puts under the race detector, so this test runs in a
// pass without it.

// TestClass_WaitingAllocatesNothing passes permits between goroutines, so that nearly every
// acquire waits, and cancels waits.
func TestClass_WaitingAllocatesNothing(t *testing.T) {
	const goroutines, each = 16, 1000
	q := wfq.New(1)
	classes := []*wfq.Class{q.Class("a"), q.Class("b")}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run := func() {
		var working sync.WaitGroup
		for i := range goroutines {
			working.Go(func() {
				for range each {
					p, err := classes[i%2].Acquire(ctx, 1)
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
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	// The allowance is for the goroutines of run, and for pools that the collector emptied.
	if perOp := float64(after.Mallocs-before.Mallocs) / (goroutines * each); perOp > 0.02 {
		t.Errorf("%.3f allocations per acquire", perOp)
	}
}
