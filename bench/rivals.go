package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/jackc/puddle/v2"
	"github.com/sema-go/sema"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// A contender runs acquire, hold and release n times in a row. The loop is part
// of the contender, so no interface call is measured with it.
type contender struct {
	name string
	make func(capacity int64) pairs
}

// pairs acquires weight, calls hold and releases, n times.
type pairs func(ctx context.Context, n int, weight int64, hold func())

// must panics if err is not nil: a failing implementation means that the
// benchmark is broken.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func semaphorePairs(opts ...sema.Option) func(int64) pairs {
	return func(capacity int64) pairs {
		s := sema.New(capacity, opts...)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				p, err := s.Acquire(ctx, weight)
				must(err)
				hold()
				p.Release()
			}
		}
	}
}

var (
	semaSemaphore = contender{"sema.Semaphore", semaphorePairs()}
	semaUnfair    = contender{"sema.Semaphore Unfair", semaphorePairs(sema.Unfair)}

	semaLIFO = contender{"sema.Semaphore LIFO", semaphorePairs(sema.LIFO)}

	semaWeighted = contender{"sema.Weighted", func(capacity int64) pairs {
		s := sema.NewWeighted(capacity)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				must(s.Acquire(ctx, weight))
				hold()
				s.Release(weight)
			}
		}
	}}

	semaStriped = contender{"sema.Striped", func(capacity int64) pairs {
		s := sema.NewStriped(capacity)
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				p, err := s.Acquire(ctx, 1)
				must(err)
				hold()
				p.Release()
			}
		}
	}}

	semaSpin = contender{"sema.Spin", func(capacity int64) pairs {
		s := sema.NewSpin(capacity)
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				must(s.Acquire(ctx))
				hold()
				s.Release()
			}
		}
	}}

	// bareAtomics is the lower bound: the two read-modify-write operations that
	// are unavoidable.
	bareAtomics = contender{"bare CAS + add", func(capacity int64) pairs {
		var free atomic.Int64
		free.Store(capacity)
		return func(_ context.Context, n int, weight int64, hold func()) {
			for range n {
				for {
					old := free.Load()
					if free.CompareAndSwap(old, old-weight) {
						break
					}
				}
				hold()
				free.Add(weight)
			}
		}
	}}

	xsync = contender{"x/sync", func(capacity int64) pairs {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				must(s.Acquire(ctx, weight))
				hold()
				s.Release(weight)
			}
		}
	}}

	// xsyncHandle makes x/sync safe against a double release, as is commonly
	// done: a handle on the heap that releases once.
	xsyncHandle = contender{"x/sync + handle", func(capacity int64) pairs {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				h, err := newOnceHandle(ctx, s, weight)
				must(err)
				hold()
				h.release()
			}
		}
	}}

	// channel observes the context, as all the others do.
	channel = contender{"channel", func(capacity int64) pairs {
		slots := make(chan struct{}, capacity)
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					panic(ctx.Err())
				}
				hold()
				<-slots
			}
		}
	}}

	channelNoContext = contender{"channel without ctx", func(capacity int64) pairs {
		slots := make(chan struct{}, capacity)
		return func(_ context.Context, n int, _ int64, hold func()) {
			for range n {
				slots <- struct{}{}
				hold()
				<-slots
			}
		}
	}}

	mutexCond = contender{"mutex + cond", func(capacity int64) pairs {
		var mu sync.Mutex
		freed := sync.NewCond(&mu)
		free := capacity
		return func(_ context.Context, n int, weight int64, hold func()) {
			for range n {
				mu.Lock()
				for free < weight {
					freed.Wait()
				}
				free -= weight
				mu.Unlock()
				hold()
				mu.Lock()
				free += weight
				mu.Unlock()
				freed.Signal()
			}
		}
	}}

	// pairsThatPark is the lower bound of a semaphore whose callers all wait: goroutines in pairs
	// that park for each other and wake each other, without a lock, a queue and a context.
	pairsThatPark = contender{"no queue: pairs of goroutines", func(int64) pairs {
		var links [64]chan struct{}
		for i := range links {
			links[i] = make(chan struct{}, 1)
		}
		var goroutines atomic.Int64
		return func(_ context.Context, n int, _ int64, hold func()) {
			i := goroutines.Add(1) - 1
			for k := range n {
				if first := i%2 == 0 && k == 0; !first {
					<-links[i]
				}
				hold()
				links[i^1] <- struct{}{}
			}
		}
	}}

	failsafe = contender{"failsafe bulkhead", func(capacity int64) pairs {
		b := bulkhead.New[any](uint(capacity))
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				must(b.AcquirePermit(ctx))
				hold()
				b.ReleasePermit()
			}
		}
	}}

	puddlePool = contender{"puddle", func(capacity int64) pairs {
		pool, err := puddle.NewPool(&puddle.Config[int]{
			Constructor: func(context.Context) (int, error) { return 0, nil },
			Destructor:  func(int) {},
			MaxSize:     int32(capacity),
		})
		must(err)
		return func(ctx context.Context, n int, _ int64, hold func()) {
			for range n {
				r, err := pool.Acquire(ctx)
				must(err)
				hold()
				r.Release()
			}
		}
	}}

	// errGroup starts a goroutine for each operation, as its API requires.
	errGroup = contender{"errgroup", func(capacity int64) pairs {
		return func(ctx context.Context, n int, _ int64, hold func()) {
			g, _ := errgroup.WithContext(ctx)
			g.SetLimit(int(capacity))
			for range n {
				g.Go(func() error { hold(); return nil })
			}
			must(g.Wait())
		}
	}}
)

type onceHandle struct {
	sem    *semaphore.Weighted
	weight int64
	done   atomic.Bool
}

//go:noinline
func newOnceHandle(ctx context.Context, s *semaphore.Weighted, weight int64) (*onceHandle, error) {
	if err := s.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	return &onceHandle{sem: s, weight: weight}, nil
}

func (h *onceHandle) release() {
	if h.done.CompareAndSwap(false, true) {
		h.sem.Release(h.weight)
	}
}
