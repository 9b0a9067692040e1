package teaching

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// An acquirer is what the semaphores have in common, with weights of 1.
type acquirer struct {
	acquire func(context.Context) error
	release func()
}

// all returns the semaphores of the package with n permits.
func all(n int) map[string]acquirer {
	cond, channel, spin, queue := NewCond(n), NewChannel(n), NewSpin(int64(n)), NewQueue(int64(n))
	return map[string]acquirer{
		"Cond":    {func(context.Context) error { cond.Acquire(); return nil }, cond.Release},
		"Channel": {channel.Acquire, channel.Release},
		"Spin":    {spin.Acquire, spin.Release},
		"Queue":   {func(ctx context.Context) error { return queue.Acquire(ctx, 1) }, func() { queue.Release(1) }},
	}
}

func TestAll_NeverAdmitTooMany(t *testing.T) {
	const capacity = 2
	for name, s := range all(capacity) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inUse, most atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 20_000 {
						if err := s.acquire(t.Context()); err != nil {
							t.Error(err)
							return
						}
						n := inUse.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						runtime.Gosched() // others come while the permit is held
						inUse.Add(-1)
						s.release()
					}
				})
			}
			wg.Wait()
			if n := most.Load(); n < 1 || n > capacity {
				t.Errorf("%d at once, want at most %d", n, capacity)
			}
		})
	}
}

func TestAll_CancelLosesNoPermit(t *testing.T) {
	for name, s := range all(2) {
		if name == "Cond" {
			continue // its waits cannot be cancelled
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 2000 {
						ctx, cancel := context.WithCancel(t.Context())
						go cancel()
						if s.acquire(ctx) == nil {
							s.release()
						}
						cancel()
					}
				})
			}
			wg.Wait()
			deadline, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			for range 2 { // both permits are there
				if err := s.acquire(deadline); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if s.acquire(ctx) == nil {
				t.Error("there is a third permit")
			}
		})
	}
}

func TestAll_AnEndedContextNeverAcquires(t *testing.T) {
	cause := errors.New("user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, s := range all(1) {
		if name == "Cond" {
			continue
		}
		for range 100 { // a select chooses at random
			if err := s.acquire(ctx); !errors.Is(err, cause) {
				t.Fatalf("%s: %v, want the cause", name, err)
			}
		}
	}
}

func TestChannel_RejectsAnOverRelease(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewChannel(1).Release()
}

func TestQueue_ServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewQueue(2)
		must(t, s.Acquire(t.Context(), 2))
		var served []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, weight := range []int64{2, 1, 1} {
			wg.Go(func() {
				must(t, s.Acquire(t.Context(), weight))
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(time.Duration(i+1) * time.Second)
				s.Release(weight)
			})
			synctest.Wait()
		}
		s.Release(1) // the head needs two: none is served
		synctest.Wait()
		if len(served) != 0 {
			t.Errorf("%v overtook the head", served)
		}
		s.Release(1)
		wg.Wait()
		if served[0] != 0 || len(served) != 3 {
			t.Errorf("served %v", served)
		}
	})
}

// TestQueue_HeavyHeadThatGivesUpWakesOthers is a bug of golang.org/x/sync of the past: the
// waiters behind a heavy one that gave up stayed asleep, although they fitted.
func TestQueue_HeavyHeadThatGivesUpWakesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewQueue(2)
		must(t, s.Acquire(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Acquire(ctx, 2) }()
		synctest.Wait()
		served := false
		go func() { must(t, s.Acquire(t.Context(), 1)); served = true }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !served {
			t.Error("the light waiter sleeps on")
		}
	})
}

// TestQueue_GrantThatLostTheRacePassesOn cancels a waiter while a release holds the mutex, and
// has granted permits to it when the waiter gets the mutex. Without the second look at granted
// the permits would be lost.
func TestQueue_GrantThatLostTheRacePassesOn(t *testing.T) {
	for range 500 {
		s := NewQueue(1)
		must(t, s.Acquire(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- s.Acquire(ctx, 1) }()
		for queued := false; !queued; time.Sleep(time.Microsecond) {
			s.mu.Lock()
			queued = s.waiters.Len() == 1
			s.mu.Unlock()
		}
		s.mu.Lock()
		cancel()                          // the waiter leaves its select, and waits for the mutex
		time.Sleep(20 * time.Microsecond) // most of the time; the test holds in any case
		s.free++                          // a release, under the same lock
		s.serveLocked()
		s.mu.Unlock()
		if err := <-result; err == nil {
			s.Release(1)
		}
		if s.free != 1 || s.waiters.Len() != 0 {
			t.Fatalf("%d free, %d waiters", s.free, s.waiters.Len())
		}
	}
}

// brokenAcquire waits with an if where Cond has a loop.
func (s *Cond) brokenAcquire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		s.freed.Wait()
	}
	s.free--
}

// TestCond_IfInPlaceOfTheLoopAdmitsTooMany: a caller acquires between the signal and the
// wake-up. With an if the waiter takes a permit that is not there.
func TestCond_IfInPlaceOfTheLoopAdmitsTooMany(t *testing.T) {
	free := func(acquire func(*Cond)) (n int) {
		synctest.Test(t, func(*testing.T) {
			s := NewCond(0)
			go acquire(s)
			synctest.Wait() // it waits
			s.mu.Lock()
			s.free++ // Release
			s.freed.Signal()
			s.free-- // and Acquire of another caller, before the waiter gets the mutex
			s.mu.Unlock()
			synctest.Wait()
			n = s.free
			s.Release() // for the waiter, if it waits again
		})
		return n
	}
	if n := free((*Cond).Acquire); n != 0 {
		t.Errorf("with a loop: %d free", n)
	}
	if n := free((*Cond).brokenAcquire); n != -1 {
		t.Errorf("with an if: %d free, want -1", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// pairs returns an acquire and a release of each kind.
func pairs(capacity int) map[string]func(context.Context) {
	kinds := make(map[string]func(context.Context))
	for name, s := range all(capacity) {
		kinds[name] = func(ctx context.Context) {
			if s.acquire(ctx) == nil {
				s.release()
			}
		}
	}
	s := sema.New(int64(capacity))
	kinds["sema.Semaphore"] = func(ctx context.Context) {
		if p, err := s.Acquire(ctx, 1); err == nil {
			p.Release()
		}
	}
	return kinds
}

// BenchmarkPair measures an acquire and a release: by one goroutine, and by 64 that compete
// for 8 permits.
func BenchmarkPair(b *testing.B) {
	for _, name := range []string{"Cond", "Channel", "Spin", "Queue", "sema.Semaphore"} {
		ctx, cancel := context.WithCancel(b.Context())
		b.Run("alone/"+name, func(b *testing.B) {
			pair := pairs(8)[name]
			b.ReportAllocs()
			for b.Loop() {
				pair(ctx)
			}
		})
		b.Run("64on8/"+name, func(b *testing.B) {
			pair := pairs(8)[name]
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						pair(ctx)
					}
				})
			}
			wg.Wait()
		})
		cancel()
	}
}
