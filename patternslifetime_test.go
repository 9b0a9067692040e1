package sema_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// lifetimePatterns cover where a permit is stored and how it ends.
var lifetimePatterns = []pattern{
	{"a permit in a struct that is closed", func(r *patternRun) {
		for range 6 {
			c := &heldConn{permit: r.get(r.a)}
			r.start(func() { r.work(); c.Close() })
		}
	}},
	{"a connection that its user closes, opened by another function", func(r *patternRun) {
		open := func() io.Closer { return &heldConn{permit: r.get(r.a)} }
		for range 5 {
			r.start(func() {
				c := open()
				defer c.Close()
				r.work()
			})
		}
	}},
	{"closed twice, by sync.Once", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			var once sync.Once
			end := func() { once.Do(p.Release) }
			r.start(func() { defer end(); r.work(); end() })
		}
	}},
	{"released twice", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			r.start(func() { defer p.Release(); r.work(); p.Release() })
		}
	}},
	{"released by whichever of two goroutines ends first", func(r *patternRun) {
		for range 4 {
			p := r.get(r.a)
			r.start(func() { defer p.Release(); r.work() })
			r.start(func() { defer p.Release(); r.work(); r.work() })
		}
	}},
	{"a function returns the permit", func(r *patternRun) {
		admit := func() (sema.Permit, error) { return r.a.Acquire(r.ctx, 1) }
		for range 6 {
			r.start(func() {
				p, err := admit()
				wantErr(r.t, err, nil)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"a function returns the release", func(r *patternRun) {
		enter := func() func() { return r.get(r.a).Release }
		for range 6 {
			r.start(func() {
				defer enter()()
				r.work()
			})
		}
	}},
	{"permits in a slice, released as a batch", func(r *patternRun) {
		for range 4 {
			var batch []sema.Permit
			for range 3 {
				batch = append(batch, r.get(r.a))
			}
			r.work()
			for _, p := range batch {
				p.Release()
			}
		}
	}},
	{"permits in a map, released by another goroutine", func(r *patternRun) {
		var mu sync.Mutex
		open := map[int]sema.Permit{}
		ids := make(chan int, 3)
		r.start(func() {
			for id := range ids {
				r.work()
				mu.Lock()
				p := open[id]
				delete(open, id)
				mu.Unlock()
				p.Release()
			}
		})
		for id := range 9 {
			p := r.get(r.a)
			mu.Lock()
			open[id] = p
			mu.Unlock()
			ids <- id
		}
		close(ids)
	}},
	{"permits in a sync.Map", func(r *patternRun) {
		var open sync.Map
		for id := range 3 {
			open.Store(id, r.get(r.a))
		}
		r.start(func() {
			r.work()
			open.Range(func(_, p any) bool { p.(sema.Permit).Release(); return true })
		})
		r.get(r.a).Release()
	}},
	{"the current permit behind an atomic pointer", func(r *patternRun) {
		var current atomic.Pointer[sema.Permit]
		for range 6 {
			p := r.get(r.a)
			if old := current.Swap(&p); old != nil {
				old.Release()
			}
			r.work()
		}
		current.Load().Release()
	}},
	{"a permit in a context value", func(r *patternRun) {
		type key struct{}
		for range 4 {
			ctx := context.WithValue(r.ctx, key{}, r.get(r.a))
			r.start(func() { r.work(); ctx.Value(key{}).(sema.Permit).Release() })
		}
	}},
	{"released by a timer", func(r *patternRun) {
		for range 10 {
			p := r.get(r.a)
			time.AfterFunc(r.second/2, p.Release)
		}
		r.work()
		wantErr(r.t, r.a.WaitIdle(r.ctx), nil)
	}},
	{"released when a context ends", func(r *patternRun) {
		// If it took longer, a deadlock would be suspected, see DiagnoseFull.
		ctx, cancel := context.WithTimeout(r.ctx, r.second/2)
		defer cancel()
		for range 3 {
			context.AfterFunc(ctx, r.get(r.a).Release)
		}
		r.get(r.a).Release()
		wantErr(r.t, r.a.WaitIdle(r.ctx), nil)
	}},
	{"released by a cleanup of what owns it, unless it is closed", func(r *patternRun) {
		for range 5 {
			c := &heldConn{permit: r.get(r.a)}
			stop := runtime.AddCleanup(c, func(p sema.Permit) { p.Release() }, c.permit)
			r.work()
			stop.Stop()
			c.Close()
		}
	}},
	{"split among workers", func(r *patternRun) {
		for range 3 {
			rest := mustAcquire(r.t, r.a, 3)
			for range 2 {
				part, more, err := rest.Split(1)
				wantErr(r.t, err, nil)
				rest = more
				r.start(func() { defer part.Release(); r.work() })
			}
			last := rest
			r.start(func() { defer last.Release(); r.work() })
		}
	}},
	{"split while another limit is acquired", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := mustAcquire(r.t, r.a, 2)
				q := r.get(r.b)
				one, two, err := p.Split(1)
				wantErr(r.t, err, nil)
				one.Release()
				r.work()
				q.Release()
				two.Release()
			})
		}
	}},
	{"all that is free now, as one permit", func(r *patternRun) {
		for range 5 {
			if p, err := r.a.TryAcquireFree(r.ctx); err == nil {
				r.start(func() { defer p.Release(); r.work() })
			}
			r.work()
		}
	}},
	{"a permit that is forgotten because its resource broke", func(r *patternRun) {
		s := r.gate(4, "broken")
		p := r.get(s)
		q := r.get(s)
		r.work()
		s.Forget(p)
		q.Release()
	}},
	{"a panic that is recovered", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				defer func() { recover() }()
				sema.Do(r.ctx, r.a, 1, func(context.Context) error { r.work(); panic("as patterns do") })
			})
		}
	}},
	{"a ticket in a select", func(r *patternRun) {
		for range 6 {
			r.start(func() {
				ticket := r.a.Request(1)
				defer ticket.Cancel()
				<-ticket.Ready()
				p, err := ticket.Permit()
				wantErr(r.t, err, nil)
				defer p.Release()
				r.work()
			})
		}
	}},
	{"a ticket that is cancelled for something else", func(r *patternRun) {
		for range 6 {
			r.start(func() {
				ticket := r.a.Request(2)
				defer ticket.Cancel()
				select {
				case <-ticket.Ready():
					p, err := ticket.Permit()
					wantErr(r.t, err, nil)
					defer p.Release()
					r.work()
				case <-time.After(2 * r.second):
				}
			})
		}
	}},
}

type heldConn struct{ permit sema.Permit }

func (c *heldConn) Close() error { c.permit.Release(); return nil }

// timingPatterns are patterns in which time matters.
var timingPatterns = []pattern{
	{"a job at every tick", func(r *patternRun) {
		ticker := time.NewTicker(r.second)
		defer ticker.Stop()
		for range 5 {
			<-ticker.C
			p := r.get(r.a)
			r.start(func() { defer p.Release(); r.work() })
		}
	}},
	{"a job at every tick, skipped while one runs", func(r *patternRun) {
		single := r.gate(1, "single")
		ticker := time.NewTicker(r.second)
		defer ticker.Stop()
		for range 5 {
			<-ticker.C
			if p, err := single.TryAcquire(r.ctx, 1); err == nil {
				r.start(func() { defer p.Release(); r.work() })
			}
		}
	}},
	{"TryAcquire with a fallback", func(r *patternRun) {
		for range 8 {
			r.start(func() {
				if p, err := r.a.TryAcquire(r.ctx, 1); err == nil {
					defer p.Release()
				}
				r.work()
			})
		}
	}},
	{"a retry with back-off, a permit for each attempt", func(r *patternRun) {
		for range 5 {
			r.start(func() {
				for attempt := range 3 {
					p := r.get(r.a)
					r.work()
					p.Release()
					time.Sleep(r.second << attempt / 4)
				}
			})
		}
	}},
	{"a retry under one permit", func(r *patternRun) {
		for range 5 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				for range 3 {
					r.work()
					time.Sleep(r.second / 4)
				}
			})
		}
	}},
	{"hedged requests", func(r *patternRun) {
		for range 3 {
			ctx, cancel := context.WithCancel(r.ctx)
			first := make(chan int, 2)
			for i := range 2 {
				r.start(func() {
					p, err := r.a.Acquire(ctx, 1)
					if err != nil {
						return
					}
					defer p.Release()
					r.work()
					first <- i
				})
				time.Sleep(r.second / 10)
			}
			<-first
			cancel()
		}
	}},
	{"acquire with a deadline", func(r *patternRun) {
		for range 10 {
			r.start(func() {
				ctx, cancel := context.WithTimeout(r.ctx, 2*r.second)
				defer cancel()
				p, err := r.a.Acquire(ctx, 1)
				if errors.Is(err, context.DeadlineExceeded) {
					return
				}
				defer p.Release()
				r.work()
			})
		}
	}},
	{"all waiters of a request are cancelled", func(r *patternRun) {
		ctx, cancel := context.WithCancel(r.ctx)
		for range 10 {
			r.start(func() {
				if p, err := r.a.Acquire(ctx, 1); err == nil {
					defer p.Release()
					r.work()
				}
			})
		}
		time.Sleep(r.second / 2)
		cancel()
	}},
	{"a bound for every wait", func(r *patternRun) {
		s := r.gate(2, "bounded", sema.MaxWait(r.second), sema.MaxWaiters(3))
		for range 10 {
			r.start(func() {
				if p, err := s.Acquire(r.ctx, 1); err == nil {
					defer p.Release()
					r.work()
				}
			})
		}
	}},
	{"a heartbeat while a permit is held", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				done := make(chan struct{})
				r.start(func() {
					for {
						select {
						case <-done:
							return
						case <-time.After(r.second):
						}
					}
				})
				r.work()
				close(done)
			})
		}
	}},
	{"a watchdog that releases what takes too long", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			watchdog := time.AfterFunc(2*r.second, p.Release)
			r.start(func() { r.work(); watchdog.Stop(); p.Release() })
		}
	}},
	{"a batch that is flushed by size or time", func(r *patternRun) {
		items := make(chan sema.Permit, 10)
		r.start(func() {
			var batch []sema.Permit
			flush := func() {
				r.work()
				for _, p := range batch {
					p.Release()
				}
				batch = nil
			}
			for {
				select {
				case p, ok := <-items:
					if !ok {
						flush()
						return
					}
					if batch = append(batch, p); len(batch) == 3 {
						flush()
					}
				case <-time.After(r.second / 2):
					flush()
				}
			}
		})
		for range 10 {
			items <- r.get(r.a)
		}
		close(items)
	}},
	{"pause and resume", func(r *patternRun) {
		for range 5 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
			})
		}
		r.a.Resize(0)
		time.Sleep(3 * r.second)
		r.a.Resize(3)
	}},
	{"a start-up that holds everything until it is ready", func(r *patternRun) {
		all := mustAcquire(r.t, r.a, 3)
		for range 5 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
			})
		}
		time.Sleep(3 * r.second)
		all.Release()
	}},
}
