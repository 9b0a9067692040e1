package sema_test

import (
	"context"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// pipelinePatterns are patterns in which permits travel with data.
var pipelinePatterns = []pattern{
	{"a pipeline whose first stage acquires and whose second releases", func(r *patternRun) {
		stage := make(chan sema.Permit, 10)
		r.start(func() {
			defer close(stage)
			for range 10 {
				stage <- r.get(r.a)
			}
		})
		r.start(func() {
			for p := range stage {
				q := r.get(r.b)
				r.work()
				q.Release()
				p.Release()
			}
		})
	}},
	{"a pipeline with a limit for each stage", func(r *patternRun) {
		between := make(chan int)
		r.start(func() {
			defer close(between)
			for i := range 6 {
				p := r.get(r.a)
				r.work()
				p.Release()
				between <- i
			}
		})
		r.start(func() {
			for range between {
				p := r.get(r.b)
				r.work()
				p.Release()
			}
		})
	}},
	{"back-pressure: an item holds its permit until it leaves the last stage", func(r *patternRun) {
		first, second := make(chan sema.Permit), make(chan sema.Permit)
		r.start(func() {
			defer close(first)
			for range 8 {
				first <- r.get(r.a)
			}
		})
		r.start(func() {
			defer close(second)
			for p := range first {
				r.work()
				second <- p
			}
		})
		for p := range second {
			p.Release()
		}
	}},
	{"a permit of the next stage is acquired before the last is released", func(r *patternRun) {
		next := make(chan sema.Permit, 3)
		r.start(func() {
			defer close(next)
			for range 6 {
				p := r.get(r.a)
				r.work()
				q := r.get(r.b)
				p.Release()
				next <- q
			}
		})
		for q := range next {
			r.work()
			q.Release()
		}
	}},
	{"fan out, fan in", func(r *patternRun) {
		results := make(chan int, 10)
		var parts sync.WaitGroup
		for i := range 10 {
			parts.Go(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
				results <- i
			})
		}
		r.start(func() { parts.Wait(); close(results) })
		for range results {
		}
	}},
	{"fan out, and every result holds its permit until it is used", func(r *patternRun) {
		results := make(chan sema.Permit)
		r.start(func() {
			var parts sync.WaitGroup
			for range 8 {
				p := r.get(r.a)
				parts.Go(func() { r.work(); results <- p })
			}
			parts.Wait()
			close(results)
		})
		for p := range results {
			p.Release()
		}
	}},
	{"map, then reduce", func(r *patternRun) {
		var mapped sync.WaitGroup
		sums := make([]int, 6)
		for i := range sums {
			mapped.Go(func() {
				p := r.get(r.a)
				defer p.Release()
				r.work()
				sums[i] = i
			})
		}
		mapped.Wait()
		p := mustAcquire(r.t, r.a, 3)
		r.work()
		p.Release()
	}},
	{"a bounded buffer of two counters", func(r *patternRun) {
		free, used := sema.NewCounter(3, 3, sema.Diagnose(sema.DiagnoseFull)), sema.NewCounter(0, 3, sema.Diagnose(sema.DiagnoseFull))
		r.start(func() {
			for range 8 {
				wantErr(r.t, free.Wait(r.ctx, 1), nil)
				used.Post(1)
			}
		})
		for range 8 {
			wantErr(r.t, used.Wait(r.ctx, 1), nil)
			r.work()
			free.Post(1)
		}
	}},
	{"a ring of goroutines that pass one permit on", func(r *patternRun) {
		links := []chan sema.Permit{make(chan sema.Permit), make(chan sema.Permit), make(chan sema.Permit)}
		for i := range 2 {
			r.start(func() {
				p := <-links[i]
				r.work()
				links[i+1] <- p
			})
		}
		links[0] <- r.get(r.a)
		waiting := acquiring(r.ctx, r.a, 3)
		(<-links[2]).Release()
		(<-waiting).permit.Release()
	}},
	{"an iterator that holds a permit for each element", func(r *patternRun) {
		elements := func(yield func(int) bool) {
			for i := range 6 {
				p := r.get(r.a)
				r.work()
				more := yield(i)
				p.Release()
				if !more {
					return
				}
			}
		}
		for i := range elements {
			if i == 4 {
				break
			}
		}
	}},
	{"an iterator that is pulled, under a limit of its own", func(r *patternRun) {
		next, stop := iter.Pull(func(yield func(int) bool) {
			p := r.get(r.b)
			defer p.Release()
			for i := range 3 {
				if !yield(i) {
					return
				}
			}
		})
		defer stop()
		for {
			if _, more := next(); !more {
				return
			}
			p := r.get(r.a)
			r.work()
			p.Release()
		}
	}},
	{"work that is queued twice: once for its input, once for its output", func(r *patternRun) {
		for range 6 {
			r.start(func() {
				in := r.get(r.a)
				r.work()
				in.Release()
				out := r.get(r.b)
				r.work()
				out.Release()
				again := r.get(r.a)
				again.Release()
			})
		}
	}},
}

// serverPatterns are patterns of servers and their clients.
var serverPatterns = []pattern{
	{"a limit around an http.Handler", func(r *patternRun) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			p, err := r.a.Acquire(req.Context(), 1)
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			defer p.Release()
			r.work()
		})
		for range 8 {
			r.start(func() {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(r.ctx, "GET", "/", nil))
			})
		}
	}},
	{"middleware: a limit for all, then one for the route", func(r *patternRun) {
		limit := func(s *sema.Semaphore, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				sema.Do(req.Context(), s, 1, func(ctx context.Context) error {
					next.ServeHTTP(w, req.WithContext(ctx))
					return nil
				})
			})
		}
		mux := http.NewServeMux()
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.work() })
		mux.Handle("/b", limit(r.b, work))
		mux.Handle("/c", limit(r.c, work))
		server := limit(r.a, mux)
		for i := range 8 {
			path := []string{"/b", "/c"}[i%2]
			r.start(func() {
				server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(r.ctx, "GET", path, nil))
			})
		}
	}},
	{"accept a connection under a permit, release when it is closed", func(r *patternRun) {
		for range 6 {
			p := r.get(r.a)
			server, client := net.Pipe()
			r.start(func() {
				defer p.Release()
				defer server.Close()
				server.Read(make([]byte, 1))
				r.work()
			})
			r.start(func() { defer client.Close(); client.Write([]byte{1}) })
		}
	}},
	{"a reader and a writer for each connection, the last releases", func(r *patternRun) {
		for range 5 {
			p := r.get(r.a)
			var both sync.WaitGroup
			both.Go(r.work)
			both.Go(func() {
				q := r.get(r.b)
				r.work()
				q.Release()
			})
			r.start(func() { both.Wait(); p.Release() })
		}
	}},
	{"a transaction: a connection, and a limit for heavy statements", func(r *patternRun) {
		for i := range 8 {
			r.start(func() {
				conn := r.get(r.a)
				defer conn.Release()
				r.work()
				if i%2 == 0 {
					heavy := r.get(r.b)
					r.work()
					heavy.Release()
				}
			})
		}
	}},
	{"memory by weight for an upload, then a slot to store it", func(r *patternRun) {
		memory := r.gate(10, "memory")
		for i := range 6 {
			r.start(func() {
				m := mustAcquire(r.t, memory, int64(2+i))
				defer m.Release()
				slot := r.get(r.a)
				defer slot.Release()
				r.work()
			})
		}
	}},
	{"a cache that is filled once for all waiters", func(r *patternRun) {
		var fill sync.Once
		filled := make(chan struct{})
		for range 6 {
			r.start(func() {
				fill.Do(func() {
					p := r.get(r.a)
					r.start(func() { defer p.Release(); r.work(); close(filled) })
				})
				<-filled
			})
		}
	}},
	{"single-flight for each key", func(r *patternRun) {
		var mu sync.Mutex
		flights := map[int]chan struct{}{}
		for i := range 9 {
			r.start(func() {
				mu.Lock()
				done, flying := flights[i%3]
				if !flying {
					done = make(chan struct{})
					flights[i%3] = done
				}
				mu.Unlock()
				if flying {
					<-done
					return
				}
				p := r.get(r.a)
				r.work()
				p.Release()
				close(done)
			})
		}
	}},
	{"requests that wait for a background job of another limit", func(r *patternRun) {
		for range 4 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				done := make(chan struct{})
				r.start(func() {
					defer close(done)
					q := r.get(r.b)
					defer q.Release()
					r.work()
				})
				<-done
			})
		}
	}},
	{"a long poll that holds its permit until there is a change", func(r *patternRun) {
		change := make(chan struct{})
		for range 3 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				<-change
			})
		}
		late := acquiring(r.ctx, r.a, 1)
		r.work()
		close(change)
		(<-late).permit.Release()
	}},
	{"shutdown: no more requests, wait for those that run", func(r *patternRun) {
		s := r.gate(2, "shutdown")
		for range 6 {
			r.start(func() {
				if p, err := s.Acquire(r.ctx, 1); err == nil {
					defer p.Release()
					r.work()
				}
			})
		}
		time.Sleep(r.second / 2)
		wantErr(r.t, s.Drain(r.ctx), nil)
		s.Close()
	}},
	{"a leader that holds its only permit while followers wait", func(r *patternRun) {
		leader := r.gate(1, "leader")
		for range 3 {
			r.start(func() {
				p := r.get(leader)
				defer p.Release()
				for range 3 {
					q := r.get(r.a)
					r.work()
					q.Release()
				}
			})
		}
	}},
	{"a proxy that calls itself with another limit", func(r *patternRun) {
		inner := func() {
			p := r.get(r.b)
			defer p.Release()
			r.work()
		}
		for range 6 {
			r.start(func() {
				p := r.get(r.a)
				defer p.Release()
				done := make(chan struct{})
				go func() { defer close(done); inner() }()
				<-done
			})
		}
	}},
	{"a scheduler: one goroutine acquires for jobs of two kinds as they come", func(r *patternRun) {
		jobs := make(chan *sema.Semaphore, 20)
		r.start(func() {
			for kind := range jobs {
				p := r.get(kind)
				r.start(func() { defer p.Release(); r.work() })
			}
		})
		for i := range 16 {
			jobs <- []*sema.Semaphore{r.a, r.b, r.b, r.a, r.c}[i%5]
		}
		close(jobs)
	}},
}
