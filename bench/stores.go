package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
)

// scope owns the servers that scenarios start.
var scope *storetest.Scope

// installed reports whether a program is installed. If it is not, installed
// prints which scenarios are skipped.
func installed(program, scenarios string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	fmt.Fprintf(os.Stderr, "%s is not installed: scenarios %s are skipped\n", program, scenarios)
	return false
}

// once returns a function that calls begin on first use and caches the result.
func once[T any](begin func(*storetest.Scope) T) func() T {
	return sync.OnceValue(func() T { return begin(scope) })
}

// A storeBench measures fleet semaphores through a store server.
type storeBench struct {
	url   func() string
	names int
}

// semaphore returns a new semaphore and a function that deletes it.
func (b *storeBench) semaphore(capacity int64, opts ...fleet.Option) (*fleet.Semaphore, func()) {
	c, err := fleet.Open(context.Background(), b.url())
	must(err)
	b.names++
	s, err := c.Semaphore(fmt.Sprintf("bench-%d-%d", os.Getpid(), b.names), capacity, opts...)
	must(err)
	acquireOne(s).Release()
	return s, func() {
		must(c.Delete(context.Background(), s.Name()))
		must(c.Close(context.Background()))
	}
}

// oneAcquire times the acquires of one goroutine, without the releases. Each
// release is confirmed by the store before the next acquire.
func (b *storeBench) oneAcquire() sample {
	const times = 2000
	s, done := b.semaphore(1000)
	defer done()
	took := make([]time.Duration, 0, times)
	for range times {
		start := time.Now()
		p := acquireOne(s)
		took = append(took, time.Since(start))
		must(fleet.Release(caller, p))
	}
	return sampleOf(took)
}

// pairs runs acquire and release in goroutines, with enough permits for all of
// them.
func (b *storeBench) pairs(goroutines, each int) func() sample {
	return func() sample {
		s, done := b.semaphore(1000)
		defer done()
		return concurrently(goroutines, each, func(int) { acquireOne(s).Release() })
	}
}

// pooled runs acquire and release of a pooled semaphore in one goroutine.
func (b *storeBench) pooled() sample {
	s, done := b.semaphore(1000, fleet.ModePooled)
	defer done()
	return gatePairs(s)
}

// pooledScenario returns the scenario of a pooled semaphore, which is the same
// for all stores.
func (b *storeBench) pooledScenario(store, title string) scenario {
	return scenario{
		name:    store + "-pooled",
		about:   title + ": one goroutine, acquire + release of a pooled semaphore",
		impls:   []impl{{"sema/fleet, pooled", b.pooled}, {"local Semaphore", func() sample { return gatePairs(sema.New(1000)) }}},
		targets: []target{{impl: "sema/fleet, pooled", limit: 1000, value: func(r row) float64 { return r.NsOp }, unit: "ns a pair"}},
	}
}

// concurrently calls do in goroutines, each times per goroutine.
func concurrently(goroutines, each int, do func(goroutine int)) sample {
	return measure(goroutines*each, func() {
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for range each {
					do(i)
				}
			})
		}
		wg.Wait()
	})
}
