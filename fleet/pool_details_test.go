package fleet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

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

func TestPooled_RejectedTryReportsItsOwnWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(100, fleet.ModePooled))
		p := mustAcquire(t, s, 10)
		q := mustAcquire(t, semaphore(t, b, of(100)), 90)
		_, err := s.TryAcquire(t.Context(), 5)
		wantErr(t, err, sema.ErrFull)
		if fault := faultOf(t, err); fault.Weight != 5 {
			t.Errorf("the error has weight %d, want 5", fault.Weight)
		}
		p.Release()
		q.Release()
	})
}

func TestStats_CountsExchanges(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, conn := newClient(t, store)
			first := semaphore(t, a, of(1))
			s := semaphore(t, b, of(1, mode))
			p := mustAcquire(t, first, 1)
			got := make(chan sema.Permit)
			go func() { got <- mustAcquire(t, s, 1) }()
			synctest.Wait()
			p.Release()
			q := <-got
			synctest.Wait()
			if c := first.Stats().Exchanges; c.Sessions != 1 || c.Grants != 1 || c.Releases != 1 || c.Batches != 2 || c.Failures != 0 {
				t.Errorf("first client: %+v", c)
			}
			if c := s.Stats().Exchanges; c.Sessions != 1 || c.Grants != 1 || c.Releases != 0 || c.Notifications != 1 || c.Batches != 2 {
				t.Errorf("second client: %+v", c)
			}
			conn.cut.Store(true)
			if mode == fleet.ModeExact {
				q.Release()
			}
			time.Sleep(time.Minute)
			want := fleet.Exchanges{Grants: 1, Notifications: 1, Sessions: 1, SessionsLost: 1}
			if mode == fleet.ModeExact {
				want.Releases, want.Unconfirmed = 1, 1
			}
			c := s.Stats().Exchanges
			if c.Failures == 0 || c.Batches < c.Failures || c.Batches < c.Heartbeats+c.HeartbeatsFailed || c.ExchangeTime == 0 {
				t.Errorf("during the outage: %+v", c)
			}
			c.Failures, c.Batches, c.Heartbeats, c.HeartbeatsFailed, c.ExchangeTime = 0, 0, 0, 0, 0
			want.Lost = c.Lost // TestStats_CountLossesByReason
			if c != want {
				t.Errorf("during the outage: %+v, want %+v", c, want)
			}
			conn.cut.Store(false)
			mustAcquire(t, s, 1).Release()
			if c := s.Stats().Exchanges; c.Sessions != 2 || c.Grants != 2 {
				t.Errorf("after the outage: %+v", c)
			}
		})
	}
}

func TestStats_CountsWaiters(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			var mu sync.Mutex
			queued := -1
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Minute), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == sema.EventQueued {
					queued = e.Waiters
				}
			}))))
			p := mustAcquire(t, s, 1)
			for n := range 2 {
				go s.Acquire(t.Context(), 1)
				synctest.Wait()
				mu.Lock()
				if got := s.Stats().Waiters; got != n+1 || queued != n+1 {
					t.Errorf("%d waiters by Stats, %d reported, want %d", got, queued, n+1)
				}
				mu.Unlock()
			}
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrFull)
			if fault := faultOf(t, err); fault.Waiters != 2 {
				t.Errorf("%v: %d waiters, want 2", err, fault.Waiters)
			}
			start := time.Now()
			_, err = s.Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrTimeout)
			if fault := faultOf(t, err); fault.Detail != "1m0s" || fault.Weight != 1 || time.Since(start) != time.Minute {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			p.Release()
		})
	}
}

func TestPooled_QuantumEndsByTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 2, of(2, fleet.Quantum(rtt)))
		p, q := mustAcquire(t, sems[0], 1), mustAcquire(t, sems[0], 1)
		start := time.Now()
		time.AfterFunc(6*rtt, p.Release)
		mustAcquire(t, sems[1], 1).Release()
		if took := time.Since(start); took > 12*rtt {
			t.Errorf("waited %v for a permit that was released after %v, after the quantum", took, 6*rtt)
		}
		q.Release()
	})
}

func TestPooled_RejectsAStoredRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		mustAcquire(t, semaphore(t, a, of(5, fleet.Rate(time.Second))), 1)
		_, err := semaphore(t, b, of(5, fleet.ModePooled)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrInvalid)
	})
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

func TestPooled_QueuedCallerBecomesTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(8))
		admin, _ := newClient(t, store)
		all := mustAcquire(t, sems[1], 8)
		go func() { mustAcquire(t, sems[0], 1).Release() }()
		synctest.Wait()
		heavy := make(chan error)
		go func() { // the second in the queue, unknown to the store
			_, err := sems[0].Acquire(context.Background(), 5)
			heavy <- err
		}()
		time.Sleep(time.Second)
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 2 }), nil)
		start := time.Now()
		wantErr(t, <-heavy, sema.ErrTooLarge)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("rejected after %v", took)
		}
		all.Release()
		time.Sleep(time.Second)
	})
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

func TestPooled_GrowsWithFewBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, _ := pools(t, 1, of(1000))
		for range 100 {
			mustAcquire(t, sems[0], 1)
		}
		if n := links[0].batches.Load(); n > 10 {
			t.Errorf("%d batches for a hundred permits", n)
		}
	})
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

func TestRelease_WaitsForOneReply(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, conn := newClient(t, store)
			conn.delay = rtt
			s := semaphore(t, c, of(3, mode))
			p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
			time.Sleep(time.Second)
			start := time.Now()
			wantErr(t, fleet.Release(t.Context(), p), nil)
			if took := time.Since(start); took > rtt {
				t.Errorf("it took %v", took)
			}
			if mode == fleet.ModePooled {
				return
			}
			go s.Acquire(t.Context(), 1) // a batch is in flight
			time.Sleep(rtt / 2)
			start = time.Now()
			wantErr(t, fleet.Release(t.Context(), q), nil)
			if used, _ := inUse(t, store); used != 1 || time.Since(start) != rtt+rtt/2 {
				t.Errorf("%d in use after %v", used, time.Since(start))
			}
		})
	}
}
