package sema_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// nestedPatterns are patterns in which a caller holds more than one permit.
var nestedPatterns = []pattern{
	{"two limits in one order", func(r *patternRun) {
		for range 10 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				q := r.get(r.b)
				defer q.Release()
				r.work()
			})
		}
	}},
	{"three limits in one order", func(r *patternRun) {
		for range 6 {
			r.start(func() {
				for _, s := range []*sema.Semaphore{r.a, r.b, r.c} {
					p := r.get(s)
					defer p.Release()
				}
				r.work()
			})
		}
	}},
	{"some of three limits, sorted", func(r *patternRun) {
		all := []*sema.Semaphore{r.a, r.b, r.c}
		for i := range 9 {
			r.start(func() {
				wanted := []int{i % 3, (i + 1 + i/3) % 3}
				slices.Sort(wanted)
				for _, k := range slices.Compact(wanted) {
					p := r.get(all[k])
					defer p.Release()
				}
				r.work()
			})
		}
	}},
	{"Do within Do", func(r *patternRun) {
		for range 8 {
			r.start(func() {
				sema.Do(r.ctx, r.a, 1, func(ctx context.Context) error {
					return sema.Do(ctx, r.b, 1, func(context.Context) error { r.work(); return nil })
				})
			})
		}
	}},
	{"Do that waits for goroutines which acquire another limit", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				sema.Do(r.ctx, r.a, 1, func(ctx context.Context) error {
					var parts sync.WaitGroup
					for range 3 {
						parts.Go(func() {
							sema.Do(ctx, r.b, 1, func(context.Context) error { r.work(); return nil })
						})
					}
					parts.Wait()
					return nil
				})
			})
		}
	}},
	{"hand over hand along a chain", func(r *patternRun) {
		for range 5 {
			r.start(func() {
				p := r.get(r.a)
				for _, next := range []*sema.Semaphore{r.b, r.c} {
					q := r.get(next)
					p.Release()
					p = q
					r.work()
				}
				p.Release()
			})
		}
	}},
	{"the outer permit is released first", func(r *patternRun) {
		for range 6 {
			r.start(func() {
				p, q := r.get(r.a), r.get(r.b)
				p.Release()
				r.work()
				q.Release()
			})
		}
	}},
	{"one after the other, in both orders, never together", func(r *patternRun) {
		for i := range 8 {
			r.start(func() {
				first, second := r.a, r.b
				if i%2 == 1 {
					first, second = r.b, r.a
				}
				p := r.get(first)
				r.work()
				p.Release()
				p = r.get(second)
				r.work()
				p.Release()
			})
		}
	}},
	{"the reverse order by TryAcquire, with back-off", func(r *patternRun) {
		for i := range 8 {
			r.start(func() {
				if i%2 == 0 {
					p, q := r.get(r.a), r.get(r.b)
					r.work()
					q.Release()
					p.Release()
					return
				}
				for {
					q := r.get(r.b)
					if p, err := r.a.TryAcquire(r.ctx, 1); err == nil {
						r.work()
						p.Release()
						q.Release()
						return
					}
					q.Release()
					r.work()
				}
			})
		}
	}},
	{"all of two at once", func(r *patternRun) {
		for i := range 10 {
			r.start(func() {
				first, second := r.a, r.b
				if i%2 == 1 {
					first, second = r.b, r.a
				}
				p, err := sema.AcquireAll(r.ctx, sema.Want{Gate: first, N: 2}, sema.Want{Gate: second, N: 2})
				wantErr(r.t, err, nil)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"all of three at once, handed over", func(r *patternRun) {
		for range 6 {
			p, err := sema.AcquireAll(r.ctx, sema.Want{Gate: r.a, N: 1}, sema.Want{Gate: r.b, N: 2}, sema.Want{Gate: r.c, N: 3})
			wantErr(r.t, err, nil)
			r.start(func() { defer p.Release(); r.work() })
		}
	}},
	{"all of two beside callers of one of them", func(r *patternRun) {
		for i := range 10 {
			r.start(func() {
				if i%2 == 0 {
					p, err := sema.AcquireAll(r.ctx, sema.Want{Gate: r.a, N: 1}, sema.Want{Gate: r.b, N: 1})
					wantErr(r.t, err, nil)
					defer p.Release()
				} else {
					p := r.get(r.b)
					defer p.Release()
				}
				r.work()
			})
		}
	}},
	{"a second permit of the same limit, which has enough", func(r *patternRun) {
		p := r.get(r.a)
		q := r.get(r.a)
		r.work()
		q.Release()
		p.Release()
	}},
	{"upgrade: release one, acquire all", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := r.get(r.a)
				r.work()
				p.Release()
				p = mustAcquire(r.t, r.a, 3)
				r.work()
				p.Release()
			})
		}
	}},
	{"upgrade: acquire the rest if it is free", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				if q, err := r.a.TryAcquire(r.ctx, 2); err == nil {
					defer q.Release()
				}
				r.work()
			})
		}
	}},
	{"downgrade: split, and release a part", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := mustAcquire(r.t, r.a, 3)
				r.work()
				one, rest, err := p.Split(1)
				wantErr(r.t, err, nil)
				rest.Release()
				r.work()
				one.Release()
			})
		}
	}},
	{"readers and a writer by weight", func(r *patternRun) {
		for i := range 9 {
			r.start(func() {
				n := int64(1)
				if i%4 == 0 {
					n = 3
				}
				p := mustAcquire(r.t, r.a, n)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"recursion with a limit for each depth", func(r *patternRun) {
		levels := []*sema.Semaphore{r.a, r.b, r.c}
		var visit func(depth int)
		visit = func(depth int) {
			if depth == len(levels) {
				r.work()
				return
			}
			p := r.get(levels[depth])
			defer p.Release()
			var children sync.WaitGroup
			for range 2 {
				children.Go(func() { visit(depth + 1) })
			}
			children.Wait()
		}
		visit(0)
	}},
	{"a mutex inside of a permit", func(r *patternRun) {
		var mu sync.Mutex
		total := 0
		for range 8 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
				mu.Lock()
				defer mu.Unlock()
				total++
			})
		}
	}},
	{"a read lock around a permit", func(r *patternRun) {
		var config sync.RWMutex
		for range 8 {
			r.start(func() {
				config.RLock()
				defer config.RUnlock()
				p := r.get(r.a)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"a permit held while waiting on a condition variable", func(r *patternRun) {
		var mu sync.Mutex
		arrived := sync.NewCond(&mu)
		n := 0
		for range 3 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
				mu.Lock()
				defer mu.Unlock()
				n++
				arrived.Broadcast()
				for n < 3 {
					arrived.Wait()
				}
			})
		}
	}},
	{"holders of one limit wait at a barrier, others hold the second", func(r *patternRun) {
		var barrier sync.WaitGroup
		barrier.Add(3)
		for range 3 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				q := r.get(r.b)
				r.work()
				q.Release()
				barrier.Done()
				barrier.Wait()
			})
		}
	}},
	{"a caller whose context carries its permit", func(r *patternRun) {
		for range 5 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				ctx, cancel := p.Context(r.ctx)
				defer cancel()
				q, err := r.b.Acquire(ctx, 1)
				wantErr(r.t, err, nil)
				defer q.Release()
				r.work()
			})
		}
	}},
	{"a goroutine whose context carries the permit of its parent", func(r *patternRun) {
		for range 4 {
			p := r.get(r.a)
			ctx, cancel := p.Context(r.ctx)
			r.start(func() {
				defer cancel()
				defer p.Release()
				q, err := r.b.Acquire(ctx, 1)
				wantErr(r.t, err, nil)
				r.work()
				q.Release()
			})
		}
	}},
	{"a counter as a signal under a permit", func(r *patternRun) {
		ready := sema.NewCounter(0, 10, sema.Diagnose(sema.DiagnoseFull))
		for range 3 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				wantErr(r.t, ready.Wait(r.ctx, 1), nil)
			})
		}
		r.work()
		for range 3 {
			ready.Post(1)
			r.work()
		}
	}},
	{"a striped semaphore around a plain one", func(r *patternRun) {
		hot := sema.NewStriped(4, append(r.opts, sema.Name("hot of "+r.t.Name()))...)
		for range 8 {
			r.start(func() {
				p := r.get(hot)
				defer p.Release()
				q := r.get(r.a)
				defer q.Release()
				r.work()
			})
		}
	}},
	{"an atomic beside a permit", func(r *patternRun) {
		var inside atomic.Int64
		for range 8 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				if inside.Add(1) > 3 {
					r.t.Error("more holders than permits")
				}
				r.work()
				inside.Add(-1)
			})
		}
	}},
}
