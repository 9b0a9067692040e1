package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestSemaphore_ClientsShareTheCapacityInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var sems []*fleet.Semaphore
		for range 3 {
			c, _ := newClient(t, store)
			sems = append(sems, semaphore(t, c, of(2)))
		}
		p := mustAcquire(t, sems[0], 2)
		_, err := sems[1].TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrFull)
		order := make(chan string, 10)
		for i, n := range []int64{1, 2, 1} { // the heavy request is not overtaken
			go func() {
				q := mustAcquire(t, sems[i], n)
				order <- fmt.Sprint(i)
				time.Sleep(time.Second)
				q.Release()
			}()
			synctest.Wait()
		}
		if used, waiting := inUse(t, store); used != 2 || waiting != 3 {
			t.Errorf("%d in use, %d waiting", used, waiting)
		}
		start := time.Now()
		p.Release()
		for _, want := range []string{"0", "1", "2"} {
			if got := <-order; got != want {
				t.Errorf("client %s was served, want %s", got, want)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v: the waiters were not woken in time", took)
		}
		time.Sleep(2 * time.Second)
		if used, waiting := inUse(t, store); used != 0 || waiting != 0 {
			t.Errorf("%d in use, %d waiting", used, waiting)
		}
	})
}

func TestSemaphore_BehavesLikeOtherGates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(4))
		cause := errors.New("the cause")
		ended, end := context.WithCancelCause(context.Background())
		end(cause)
		for _, try := range []struct {
			ctx  context.Context
			n    int64
			want error
		}{
			{context.Background(), -1, sema.ErrInvalid},
			{nil, 1, sema.ErrInvalid},
			{ended, 1, cause},
			{context.Background(), 5, sema.ErrTooLarge},
			{context.Background(), 0, nil},
		} {
			for _, acquire := range []func(context.Context, int64) (sema.Permit, error){s.Acquire, s.TryAcquire} {
				p, err := acquire(try.ctx, try.n)
				wantErr(t, err, try.want)
				if p.Held() {
					t.Errorf("weight %d: a permit was granted", try.n)
				}
			}
		}
		first, rest, err := mustAcquire(t, s, 4).Split(1)
		wantErr(t, err, nil)
		wantErr(t, fleet.Release(context.Background(), first), nil)
		if used, _ := inUse(t, store); used != 3 {
			t.Errorf("%d in use", used)
		}
		wantErr(t, fleet.Release(context.Background(), rest), nil)
		if used, _ := inUse(t, store); used != 0 {
			t.Errorf("%d in use", used)
		}
	})
}

func TestSemaphore_CancelledWaitLeavesNoTicket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1, sema.MaxWait(3*time.Second)))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrTimeout)
		synctest.Wait()
		if _, waiting := inUse(t, store); waiting != 0 {
			t.Errorf("%d waiting", waiting)
		}
		p.Release()
	})
}

func TestSemaphore_UnreachableStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.cut.Store(true)
		s := semaphore(t, c, of(1, sema.MaxWait(7*time.Second)))
		_, err := s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrUnavailable)
	})
}

func TestSemaphore_ReportsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		var mu sync.Mutex
		var kinds []sema.EventKind
		s := semaphore(t, c, of(1, sema.MaxWait(time.Second), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		}))))
		p := mustAcquire(t, s, 1)
		s.TryAcquire(context.Background(), 1)
		s.Acquire(context.Background(), 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		s.Acquire(ctx, 1)
		p.Release()
		mustAcquire(t, s, 1)
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []sema.EventKind{
			sema.EventAcquired, sema.EventExhausted, sema.EventRejected, sema.EventQueued, sema.EventTimedOut, sema.EventQueued, sema.EventCancelled,
			sema.EventReleased, sema.EventRecovered, sema.EventAcquired, sema.EventExhausted, sema.EventLost,
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
	})
}

func TestSemaphore_DrainRejectsWeightZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(context.Background(), "db", func(config *fleet.Config) { config.Draining = true }), nil)
		p.Release()
		time.Sleep(time.Second)
		_, err := s.Acquire(context.Background(), 0)
		wantErr(t, err, sema.ErrDraining)
	})
}

func TestSemaphore_ErrorsContainTheStoredCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		p := mustAcquire(t, semaphore(t, a, of(3)), 2)
		mismatched := make(chan sema.Event, 1)
		s := semaphore(t, b, of(7, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventMismatched {
				mismatched <- e
			}
		}))))
		_, err := s.TryAcquire(t.Context(), 2)
		var fault *sema.Error
		if !errors.As(err, &fault) || fault.Capacity != 3 || fault.InUse != 2 {
			t.Errorf("%v", err)
		}
		if e := <-mismatched; e.Capacity != 3 || !strings.Contains(e.Report, "capacity 3, not 7") {
			t.Errorf("%+v", e)
		}
		p.Release()
	})
}

func TestSemaphore_FastStoreClockDoesNotEndAWaitEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, fastClockStore(t))
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the wait ended after %v", took)
		}
		p.Release()
	})
}

func TestSemaphore_GrantAfterTheContextEndedIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, l := newClient(t, store)
		l.delay = 500 * time.Millisecond
		s := semaphore(t, c, of(1))
		mustAcquire(t, s, 1).Release()
		for range 50 { // whichever of grant and deadline comes first
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), l.delay) // ends when the permit is granted
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			}
			p.Release()
			cancel()
			time.Sleep(10 * time.Second)
			if used, _ := inUse(t, store); used > 0 {
				t.Fatal("a permit is in use that no caller holds")
			}
		}
	})
}

func TestSemaphore_LongQueueIsATimeoutNotAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.MaxWait(16*time.Second)))
		p := mustAcquire(t, s, 1)
		time.AfterFunc(9*time.Second, func() { conn.cut.Store(true) }) // the last exchanges fail
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		p.Release()
	})
}

// TestSemaphore_TimeoutCountsTheOtherWaiters checks that the error of a caller whose wait has ended
// does not count the caller itself, as in package sema.
func TestSemaphore_TimeoutCountsTheOtherWaiters(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Second)))
			p := mustAcquire(t, s, 1)
			for _, later := range []int{0, 2} {
				for range later {
					time.AfterFunc(time.Millisecond, func() { s.Acquire(t.Context(), 1) })
				}
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrTimeout)
				if n := faultOf(t, err).Waiters; n != later {
					t.Errorf("%v: %d waiters, want %d", err, n, later)
				}
				time.Sleep(time.Second)
			}
			p.Release()
		})
	}
}

func TestSemaphore_ErrorContainsTheRequestedCapacityBeforeAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.cut.Store(true)
		_, err := semaphore(t, c, of(7)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if fault := faultOf(t, err); fault.Capacity != 7 {
			t.Errorf("%v: capacity %d, want 7", err, fault.Capacity)
		}
	})
}

func TestSemaphore_EndedWaitReservesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, conn := newClient(t, store)
			c, _ := newClient(t, store)
			o := of(1)
			p := mustAcquire(t, semaphore(t, a, o), 1)
			waiter := o
			waiter = waiter.with(mode)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go semaphore(t, b, waiter).Acquire(ctx, 1)
			synctest.Wait()
			conn.cut.Store(true) // the cancel does not reach the store
			time.Sleep(2 * time.Second)
			p.Release()
			start := time.Now()
			mustAcquire(t, semaphore(t, c, o), 1).Release()
			if took := time.Since(start); took > 0 {
				t.Errorf("it took %v, while a caller was served that had given up", took)
			}
		})
	}
}

func TestSemaphore_WeightWithinTheWholeIsNotTooLarge(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(3, mode))
			mustAcquire(t, s, 1).Release()
			setStored(t, store, func(c *protocol.Config) { c.Whole = 9 })
			time.Sleep(20 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := s.Acquire(ctx, 5)
			wantErr(t, err, context.DeadlineExceeded)
			_, err = s.Acquire(t.Context(), 10)
			wantErr(t, err, sema.ErrTooLarge)
		})
	}
}

func TestSemaphore_PausedIsNotTooLarge(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(3, mode))
			mustAcquire(t, s, 1).Release()
			resize := func(capacity int64) {
				wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = capacity }), nil)
			}
			resize(0)
			time.Sleep(10 * time.Second)
			time.AfterFunc(20*time.Second, func() { resize(3) })
			mustAcquire(t, s, 2).Release()
		})
	}
}

func TestSemaphore_ReleaseOfEachPartIsReported(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			var released []sema.Event
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(3, mode, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if e.Kind == sema.EventReleased {
					released = append(released, e)
				}
			}))))
			p := mustAcquire(t, s, 3)
			time.Sleep(time.Second)
			a, b, err := p.Split(1)
			wantErr(t, err, nil)
			time.Sleep(time.Second)
			a.Release()
			time.Sleep(time.Second)
			b.Release()
			if len(released) != 2 || released[0].Weight != 1 || released[0].Hold != 2*time.Second || released[1].Weight != 2 || released[1].Hold != 3*time.Second {
				t.Errorf("reported %+v", released)
			}
		})
	}
}
