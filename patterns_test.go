package sema_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A pattern is a common use of semaphores in Go programs. It ends with all permits
// released.
type pattern struct {
	name string
	run  func(r *patternRun)
}

// A patternRun provides what a pattern needs.
type patternRun struct {
	t       *testing.T
	ctx     context.Context
	a, b, c *sema.Semaphore // of capacity 3
	opts    []sema.SharedOption
	hold    time.Duration // duration of one job
	second  time.Duration // unit of time; shorter outside a bubble
	started sync.WaitGroup
}

// work simulates a job.
func (r *patternRun) work() { time.Sleep(r.hold) }

func (r *patternRun) get(g sema.Gate) sema.Permit { return mustAcquire(r.t, g, 1) }

// start starts a goroutine that ends before the pattern does.
func (r *patternRun) start(f func()) { r.started.Go(f) }

// gate returns another diagnosed semaphore.
func (r *patternRun) gate(capacity int64, name string, opts ...sema.Option) *sema.Semaphore {
	opts = append(opts, sema.Name(name+" of "+r.t.Name()))
	for _, o := range r.opts {
		opts = append(opts, o)
	}
	return sema.New(capacity, opts...)
}

// patterns returns all patterns of the files patterns*_test.go.
func patterns() (all []pattern) {
	all = append(all, dispatchPatterns...)
	all = append(all, workerPatterns...)
	all = append(all, nestedPatterns...)
	all = append(all, lifetimePatterns...)
	all = append(all, timingPatterns...)
	all = append(all, pipelinePatterns...)
	return append(all, serverPatterns...)
}

func (p pattern) check(t *testing.T, hold, second time.Duration) {
	j, observe := reports(sema.EventInverted, sema.EventDeadlocked, sema.EventLeaked)
	r := &patternRun{t: t, ctx: t.Context(), hold: hold, second: second, opts: []sema.SharedOption{sema.Diagnose(sema.DiagnoseFull), observe}}
	r.a, r.b, r.c = r.gate(3, "a"), r.gate(3, "b"), r.gate(3, "c")
	p.run(r)
	r.started.Wait()
	for _, e := range j.take() {
		t.Errorf("%v: %s", e.Kind, e.Report)
	}
	for _, s := range []*sema.Semaphore{r.a, r.b, r.c} {
		if st := s.Stats(); st.InUse != 0 || st.Waiters != 0 {
			t.Errorf("in use at the end: %v", s)
		}
	}
}

// TestDiagnose_CommonPatternsRunClean checks that common patterns are not reported as
// leaks, inversions or deadlocks, however long their jobs take.
func TestDiagnose_CommonPatternsRunClean(t *testing.T) {
	all := patterns()
	if len(all) < 100 {
		t.Errorf("%d patterns, want 100", len(all))
	}
	names := map[string]bool{}
	for _, p := range all {
		if names[p.name] {
			t.Errorf("two patterns are named %q", p.name)
		}
		names[p.name] = true
	}
	// Long jobs run first: once one of them ends, its permit is known to be handed over.
	for _, hold := range []time.Duration{10 * time.Second, time.Millisecond} {
		for _, p := range all {
			t.Run(p.name+", jobs of "+hold.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { p.check(t, hold, time.Second) })
			})
		}
	}
}

// TestDiagnose_CommonPatternsLeakNothing runs outside bubbles, because leaks are detected
// only there.
func TestDiagnose_CommonPatternsLeakNothing(t *testing.T) {
	stop := make(chan struct{})
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				runtime.GC()
			}
		}
	})
	for _, p := range patterns() {
		t.Run(p.name, func(t *testing.T) { p.check(t, 100*time.Microsecond, time.Millisecond) })
	}
	close(stop)
	collecting.Wait()
}
