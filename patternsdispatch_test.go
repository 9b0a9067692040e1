package sema_test

import (
	"context"
	"sync"

	"github.com/sema-go/sema"
)

// dispatchPatterns are patterns in which one goroutine acquires and others work.
var dispatchPatterns = []pattern{
	{"acquire in a loop, release in the goroutine", func(r *patternRun) {
		var jobs sync.WaitGroup
		for range 10 {
			p := r.get(r.a)
			jobs.Add(1)
			go func() {
				defer jobs.Done()
				defer p.Release()
				r.work()
			}()
		}
		jobs.Wait()
	}},
	{"acquire in a loop, start with WaitGroup.Go", func(r *patternRun) {
		var jobs sync.WaitGroup
		for range 10 {
			p := r.get(r.a)
			jobs.Go(func() { r.work(); p.Release() })
		}
		jobs.Wait()
	}},
	{"acquire all permits to wait for all jobs", func(r *patternRun) {
		for range 10 {
			p := r.get(r.a)
			r.start(func() { defer p.Release(); r.work() })
		}
		mustAcquire(r.t, r.a, 3).Release()
	}},
	{"a dispatcher of two kinds of jobs", func(r *patternRun) {
		for i := range 20 {
			s := r.a
			if i%2 == 1 {
				s = r.b
			}
			p := r.get(s)
			r.start(func() { defer p.Release(); r.work() })
		}
	}},
	{"a dispatcher of three kinds of jobs in a random order", func(r *patternRun) {
		kinds := []*sema.Semaphore{r.a, r.b, r.c}
		for i := range 30 {
			p := r.get(kinds[(i*i+i/3)%3])
			r.start(func() { defer p.Release(); r.work() })
		}
	}},
	{"two permits for each job, in one order", func(r *patternRun) {
		for range 8 {
			p, q := r.get(r.a), r.get(r.b)
			r.start(func() {
				defer q.Release()
				defer p.Release()
				r.work()
			})
		}
	}},
	{"jobs of different weights", func(r *patternRun) {
		for i := range 10 {
			p := mustAcquire(r.t, r.a, int64(1+i%3))
			r.start(func() { defer p.Release(); r.work() })
		}
	}},
	{"the goroutine is started by a function that takes the permit", func(r *patternRun) {
		startJob := func(p sema.Permit) {
			r.start(func() { defer p.Release(); r.work() })
		}
		for range 8 {
			startJob(r.get(r.a))
		}
	}},
	{"the goroutine runs a method of a job that has the permit", func(r *patternRun) {
		for range 8 {
			j := &heldJob{r: r, permit: r.get(r.a)}
			r.start(j.run)
		}
	}},
	{"a goroutine that starts the next one under the same permit", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			r.start(func() {
				r.work()
				r.start(func() { defer p.Release(); r.work() })
			})
		}
	}},
	{"several goroutines share one permit, the last releases it", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			var parts sync.WaitGroup
			for range 3 {
				parts.Go(r.work)
			}
			r.start(func() { parts.Wait(); p.Release() })
		}
	}},
	{"a loop that stops at the first error", func(r *patternRun) {
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		for i := range 10 {
			p, err := r.a.Acquire(ctx, 1)
			if err != nil {
				break
			}
			r.start(func() {
				defer p.Release()
				r.work()
				if i == 4 {
					cancel()
				}
			})
		}
	}},
	{"errgroup: the limit is acquired by Go", func(r *patternRun) {
		g := &limitedGroup{r: r, limit: r.a}
		for range 10 {
			g.Go(func() error { r.work(); return nil })
		}
		g.wait.Wait()
	}},
	{"nested loops with a limit for each level", func(r *patternRun) {
		for range 3 {
			outer := r.get(r.a)
			r.start(func() {
				defer outer.Release()
				var inner sync.WaitGroup
				for range 3 {
					p := r.get(r.b)
					inner.Go(func() { defer p.Release(); r.work() })
				}
				inner.Wait()
			})
		}
	}},
	{"parallel recursion, sequential when the limit is reached", func(r *patternRun) {
		var walk func(depth int)
		walk = func(depth int) {
			if depth == 0 {
				r.work()
				return
			}
			var children sync.WaitGroup
			for range 2 {
				if p, err := r.a.TryAcquire(r.ctx, 1); err == nil {
					children.Go(func() { defer p.Release(); walk(depth - 1) })
				} else {
					walk(depth - 1)
				}
			}
			children.Wait()
		}
		walk(3)
	}},
	{"two dispatchers share two limits in opposite orders, each permit is handed over", func(r *patternRun) {
		for _, order := range [][]*sema.Semaphore{{r.a, r.b}, {r.b, r.a}} {
			r.start(func() {
				for i := range 10 {
					p := r.get(order[i%2])
					r.start(func() { defer p.Release(); r.work() })
				}
			})
		}
	}},
}

type heldJob struct {
	r      *patternRun
	permit sema.Permit
}

func (j *heldJob) run() { defer j.permit.Release(); j.r.work() }

// A limitedGroup is errgroup.Group with SetLimit.
type limitedGroup struct {
	r     *patternRun
	limit *sema.Semaphore
	wait  sync.WaitGroup
	once  sync.Once
	err   error
}

func (g *limitedGroup) Go(f func() error) {
	p := g.r.get(g.limit)
	g.wait.Add(1)
	go func() {
		defer func() { p.Release(); g.wait.Done() }()
		if err := f(); err != nil {
			g.once.Do(func() { g.err = err })
		}
	}()
}

// workerPatterns are patterns in which workers acquire for themselves or receive permits.
var workerPatterns = []pattern{
	{"acquire in each goroutine", func(r *patternRun) {
		for range 10 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"workers read jobs from a channel and acquire for each", func(r *patternRun) {
		jobs := make(chan int)
		for range 5 {
			r.start(func() {
				for range jobs {
					p := r.get(r.a)
					r.work()
					p.Release()
				}
			})
		}
		for i := range 15 {
			jobs <- i
		}
		close(jobs)
	}},
	{"a worker holds a permit for as long as it runs", func(r *patternRun) {
		jobs := make(chan int)
		for range 3 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				for range jobs {
					r.work()
				}
			})
		}
		for i := range 9 {
			jobs <- i
		}
		close(jobs)
	}},
	{"a dispatcher that sends permits to workers", func(r *patternRun) {
		queue := make(chan sema.Permit, 100)
		for range 4 {
			r.start(func() {
				for p := range queue {
					r.work()
					p.Release()
				}
			})
		}
		for i := range 12 {
			first, second := r.a, r.b
			if i%3 == 2 {
				first, second = r.b, r.a
			}
			queue <- r.get(first)
			queue <- r.get(second)
		}
		close(queue)
	}},
	{"a job in a channel has a permit of each of two kinds", func(r *patternRun) {
		type job struct{ a, b sema.Permit }
		queue := make(chan job, 10)
		for range 3 {
			r.start(func() {
				for j := range queue {
					r.work()
					j.a.Release()
					j.b.Release()
				}
			})
		}
		for range 8 {
			queue <- job{r.get(r.a), r.get(r.b)}
		}
		close(queue)
	}},
	{"workers send permits back, the dispatcher releases them", func(r *patternRun) {
		jobs, done := make(chan sema.Permit, 3), make(chan sema.Permit, 3)
		for range 3 {
			r.start(func() {
				for p := range jobs {
					r.work()
					done <- p
				}
			})
		}
		for range 4 {
			for range 3 {
				jobs <- r.get(r.a)
			}
			for range 3 {
				(<-done).Release()
			}
		}
		close(jobs)
	}},
	{"a semaphore for each key", func(r *patternRun) {
		byKey := map[string]*sema.Semaphore{}
		for _, key := range []string{"x", "y", "z"} {
			byKey[key] = r.gate(1, key)
		}
		for _, key := range []string{"x", "y", "z", "x", "y", "x"} {
			r.start(func() {
				p := r.get(byKey[key])
				defer p.Release()
				r.work()
			})
		}
	}},
	{"a semaphore for each key, created on demand under a mutex", func(r *patternRun) {
		var mu sync.Mutex
		byKey := map[int]*sema.Semaphore{}
		for i := range 9 {
			r.start(func() {
				mu.Lock()
				s := byKey[i%3]
				if s == nil {
					s = r.gate(1, "key")
					byKey[i%3] = s
				}
				mu.Unlock()
				p := r.get(s)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"a limit for each tenant under a limit for all", func(r *patternRun) {
		tenants := []*sema.Semaphore{r.gate(2, "tenant 0"), r.gate(2, "tenant 1")}
		for i := range 10 {
			r.start(func() {
				p := r.get(tenants[i%2])
				defer p.Release()
				q := r.get(r.a)
				defer q.Release()
				r.work()
			})
		}
	}},
	{"a pool that is resized while it works", func(r *patternRun) {
		for range 10 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
			})
		}
		for _, n := range []int64{1, 5, 2, 3} {
			r.work()
			r.a.Resize(n)
		}
	}},
	{"a worker that acquires again after its release", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				for range 3 {
					p := r.get(r.a)
					r.work()
					p.Release()
					p = r.get(r.a)
					p.Release()
				}
			})
		}
	}},
	{"workers of two queues, one limit each, jobs sent from one to the other", func(r *patternRun) {
		second := make(chan int, 20)
		var first sync.WaitGroup
		for range 4 {
			first.Go(func() {
				for i := range 3 {
					p := r.get(r.a)
					r.work()
					p.Release()
					second <- i
				}
			})
		}
		for range 4 {
			r.start(func() {
				for range second {
					p := r.get(r.b)
					r.work()
					p.Release()
				}
			})
		}
		first.Wait()
		close(second)
	}},
	{"a pool that is drained at the end", func(r *patternRun) {
		s := r.gate(2, "drained")
		for range 2 {
			p := r.get(s)
			r.start(func() { defer p.Release(); r.work() })
		}
		wantErr(r.t, s.Drain(r.ctx), nil)
	}},
	{"a pool that is closed while callers wait", func(r *patternRun) {
		s := r.gate(1, "closed")
		for range 4 {
			r.start(func() {
				if p, err := s.Acquire(r.ctx, 1); err == nil {
					r.work()
					p.Release()
				}
			})
		}
		r.work()
		s.Close()
	}},
}
