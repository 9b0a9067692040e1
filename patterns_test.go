package sema_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// Common patterns of Go programs are no leaks, inversions or deadlocks, however long
// their jobs take.
func TestDiagnose_CommonPatternsRunClean(t *testing.T) {
	// Long jobs first: when one of them ends, it is known that its permit was handed over.
	for _, hold := range []time.Duration{10 * time.Second, time.Millisecond} {
		for name, pattern := range map[string]func(t *testing.T, a, b *sema.Semaphore, work func()){
			"acquire in a loop, release in the goroutine": func(t *testing.T, a, _ *sema.Semaphore, work func()) {
				var jobs sync.WaitGroup
				for range 10 {
					p := mustAcquire(t, a, 1)
					jobs.Add(1)
					go func() {
						defer jobs.Done()
						defer p.Release()
						work()
					}()
				}
				jobs.Wait()
			},
			"the same with WaitGroup.Go": func(t *testing.T, a, _ *sema.Semaphore, work func()) {
				var jobs sync.WaitGroup
				for range 10 {
					p := mustAcquire(t, a, 1)
					jobs.Go(func() { work(); p.Release() })
				}
				jobs.Wait()
			},
			"a dispatcher of two kinds of jobs": func(t *testing.T, a, b *sema.Semaphore, work func()) {
				var jobs sync.WaitGroup
				for i := range 20 {
					s := a
					if i%2 == 1 {
						s = b
					}
					p := mustAcquire(t, s, 1)
					jobs.Go(func() { defer p.Release(); work() })
				}
				jobs.Wait()
			},
			"a dispatcher that sends permits to workers": func(t *testing.T, a, b *sema.Semaphore, work func()) {
				type job struct{ permits []sema.Permit }
				queue := make(chan job, 100)
				var workers sync.WaitGroup
				for range 4 {
					workers.Go(func() {
						for j := range queue {
							work()
							for _, p := range j.permits {
								p.Release()
							}
						}
					})
				}
				for i := range 12 {
					first, second := a, b
					if i%3 == 2 {
						first, second = b, a
					}
					queue <- job{[]sema.Permit{mustAcquire(t, first, 1)}}
					queue <- job{[]sema.Permit{mustAcquire(t, second, 1)}}
				}
				close(queue)
				workers.Wait()
			},
			"acquire in each goroutine": func(t *testing.T, a, b *sema.Semaphore, work func()) {
				var jobs sync.WaitGroup
				for range 10 {
					jobs.Go(func() {
						p := mustAcquire(t, a, 1)
						defer p.Release()
						q := mustAcquire(t, b, 1)
						defer q.Release()
						work()
					})
				}
				jobs.Wait()
			},
			"release by a timer": func(t *testing.T, a, _ *sema.Semaphore, work func()) {
				for range 10 {
					p := mustAcquire(t, a, 1)
					time.AfterFunc(time.Second/2, p.Release)
				}
				work()
				time.Sleep(time.Minute)
			},
			"release when a context ends": func(t *testing.T, a, _ *sema.Semaphore, work func()) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
				defer cancel()
				for range 3 {
					context.AfterFunc(ctx, mustAcquire(t, a, 1).Release)
				}
				mustAcquire(t, a, 1).Release()
				work()
			},
			"all of two at once": func(t *testing.T, a, b *sema.Semaphore, work func()) {
				var jobs sync.WaitGroup
				for i := range 10 {
					jobs.Go(func() {
						first, second := a, b
						if i%2 == 1 {
							first, second = b, a
						}
						p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: first, N: 2}, sema.Want{Gate: second, N: 2})
						wantErr(t, err, nil)
						defer p.Release()
						work()
					})
				}
				jobs.Wait()
			},
			"a pipeline of stages": func(t *testing.T, a, b *sema.Semaphore, work func()) {
				stage := make(chan sema.Permit, 10)
				var stages sync.WaitGroup
				stages.Go(func() {
					defer close(stage)
					for range 10 {
						stage <- mustAcquire(t, a, 1)
					}
				})
				stages.Go(func() {
					for p := range stage {
						q := mustAcquire(t, b, 1)
						work()
						q.Release()
						p.Release()
					}
				})
				stages.Wait()
			},
		} {
			t.Run(name+", jobs of "+hold.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j, observe := reports(sema.EventInverted, sema.EventDeadlocked, sema.EventLeaked)
					a := sema.New(3, sema.Name("a of "+t.Name()), sema.Diagnose(sema.DiagnoseFull), observe)
					b := sema.New(3, sema.Name("b of "+t.Name()), sema.Diagnose(sema.DiagnoseFull), observe)
					pattern(t, a, b, func() { time.Sleep(hold) })
					for _, e := range j.take() {
						t.Errorf("%v: %s", e.Kind, e.Report)
					}
					wantStats(t, a, 0, 0)
					wantStats(t, b, 0, 0)
				})
			})
		}
	}
}
