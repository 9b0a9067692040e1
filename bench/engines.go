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
	"github.com/sema-go/sema/internal/enginetest"
)

// scope is what servers that scenarios start live in.
var scope *enginetest.Scope

// installed says so if a program that scenarios need is not there.
func installed(program, needed string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	fmt.Fprintf(os.Stderr, "%s is not installed: scenarios %s are left out\n", program, needed)
	return false
}

// once makes something when it is first needed.
func once[T any](begin func(*enginetest.Scope) T) func() T {
	return sync.OnceValue(func() T { return begin(scope) })
}

// An engineBench measures fleet semaphores through an engine that people run.
type engineBench struct {
	url   func() string
	names int
}

// semaphore returns a new one, and what deletes it.
func (e *engineBench) semaphore(capacity int64, opts ...fleet.Option) (*fleet.Semaphore, func()) {
	c, err := fleet.Open(context.Background(), e.url())
	must(err)
	e.names++
	s, err := c.Semaphore(fmt.Sprintf("bench-%d-%d", os.Getpid(), e.names), capacity, opts...)
	must(err)
	acquireOne(s).Release()
	return s, func() {
		must(c.Delete(context.Background(), s.Name()))
		must(c.Close(context.Background()))
	}
}

// oneAcquire times the acquires alone of one goroutine, whose releases the engine
// has heard of before it goes on.
func (e *engineBench) oneAcquire() sample {
	const times = 2000
	s, done := e.semaphore(1000)
	defer done()
	took := make([]time.Duration, 0, times)
	for range times {
		start := time.Now()
		p := acquireOne(s)
		took = append(took, time.Since(start))
		must(fleet.Release(context.Background(), p))
	}
	return sampleOf(took)
}

// pairs has goroutines acquire and release, with permits for all of them.
func (e *engineBench) pairs(goroutines, each int) func() sample {
	return func() sample {
		s, done := e.semaphore(1000)
		defer done()
		return together(goroutines, each, func(int) { acquireOne(s).Release() })
	}
}

// pooled has one goroutine acquire and release, from a pool.
func (e *engineBench) pooled() sample {
	s, done := e.semaphore(1000, fleet.ModePooled)
	defer done()
	return gatePairs(s)
}

// pooledScenario is the same for all engines.
func (e *engineBench) pooledScenario(engine, title string) scenario {
	return scenario{
		name:  engine + "-pooled",
		about: title + ": one goroutine, acquire + release of a pooled semaphore",
		impls: []impl{{"sema/fleet, pooled", e.pooled}, {"local Semaphore", func() sample { return gatePairs(sema.New(1000)) }}},
		bars:  []bar{{impl: "sema/fleet, pooled", limit: 1000, value: func(r row) float64 { return r.NsOp }, unit: "ns a pair"}},
	}
}

// together has goroutines do something, each as often.
func together(goroutines, each int, do func(goroutine int)) sample {
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
