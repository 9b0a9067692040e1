package fleet_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestPooled_EveryAcquireIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		sems, _, _ := pools(t, 1, of(2, sema.Observe(&d)))
		for range 5 { // from the block
			mustAcquire(t, sems[0], 1).Release()
			p, err := sems[0].TryAcquire(t.Context(), 1)
			wantErr(t, err, nil)
			p.Release()
		}
		if acquired, released := d.count(sema.EventAcquired), d.count(sema.EventReleased); acquired != 10 || released != 10 {
			t.Errorf("%d acquires and %d releases were reported, want 10", acquired, released)
		}
	})
}

func TestPooled_LostBlockIsNotGrantedAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		var slept atomic.Int64
		c, _ := newClient(t, memstore.New())
		c.UseSuspendableClock(func() time.Duration { return time.Duration(slept.Load()) })
		s := semaphore(t, c, of(1, fleet.ModePooled, sema.Observe(&d)))
		mustAcquire(t, s, 1).Release()
		slept.Store(int64(10 * time.Minute))
		p := mustAcquire(t, s, 1)
		wantErr(t, p.Err(), nil)
		p.Release()
	})
}

func TestPooled_StoreDecidesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(10))
		admin, _ := newClient(t, store)
		s := sems[0]
		hold := mustAcquire(t, s, 10)
		go func() { mustAcquire(t, s, 1).Release() }()
		synctest.Wait()
		time.Sleep(time.Second)
		for _, acquire := range []func(context.Context, int64) (sema.Permit, error){s.Acquire, s.TryAcquire} {
			start := time.Now()
			_, err := acquire(t.Context(), 50)
			wantErr(t, err, sema.ErrTooLarge)
			if took := time.Since(start); took > 2*rtt {
				t.Errorf("rejected after %v", took)
			}
		}
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 60 }), nil)
		other := mustAcquire(t, sems[1], 30)
		time.AfterFunc(time.Minute/2, other.Release)
		hold.Release()
		mustAcquire(t, s, 50).Release() // although it was too large at the pool's last reply
	})
}

func TestPooled_MaxWaitBoundsTheWholeWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, store := pools(t, 2, of(10, sema.MaxWait(20*time.Second)))
		admin, _ := newClient(t, store)
		mustAcquire(t, sems[0], 1).Release()
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 60 }), nil)
		other := mustAcquire(t, sems[1], 30)
		synctest.Wait()
		links[0].delay = 2 * time.Second
		start := time.Now()
		_, err := sems[0].Acquire(t.Context(), 50) // the store decides first whether it is too large
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		links[0].delay = rtt
		other.Release()
	})
}

func TestPooled_WaiterIsServedAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, _ := newClient(t, memstore.New())
		c.UseSuspendableClock(func() time.Duration { return time.Duration(slept.Load()) })
		s := semaphore(t, c, of(1, fleet.ModePooled))
		p := mustAcquire(t, s, 1)
		got := make(chan sema.Permit)
		go func() { got <- mustAcquire(t, s, 1) }()
		synctest.Wait()
		slept.Store(int64(10 * time.Minute))
		p.Release() // a permit that was lost meanwhile
		q := <-got
		wantErr(t, q.Err(), nil)
		q.Release()
	})
}

func TestPooled_PermitForAnEndedContextIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.ModePooled, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventQueued && slow.Load() {
				time.Sleep(time.Second) // meanwhile the permit is released and the context ends
			}
		}))))
		for range 20 { // whichever of grant and deadline comes first
			slow.Store(false)
			p := mustAcquire(t, s, 1)
			slow.Store(true)
			time.AfterFunc(200*time.Millisecond, p.Release)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
			synctest.Wait()
			if stats := s.Stats(); stats.Held != 0 || stats.Waiters != 0 {
				t.Fatalf("%+v", stats)
			}
		}
	})
}

func TestPooled_StoredMaxWaitersBoundsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.ModePooled))
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.MaxWaiters = 2 }), nil)
		time.Sleep(10 * time.Second)
		for range 2 {
			go s.Acquire(t.Context(), 1)
			synctest.Wait()
		}
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		if fault := faultOf(t, err); fault.Waiters != 2 {
			t.Errorf("%v: %d waiters, want 2", err, fault.Waiters)
		}
		p.Release()
	})
}

func TestPooled_BlockBoundsUnusedPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(1000, fleet.Block(3)))
		for n := range int64(50) {
			mustAcquire(t, sems[0], 1)
			if blocks := sems[0].Stats().Blocks; blocks > n+1+3 {
				t.Fatalf("the pool has %d permits, and %d are held", blocks, n+1)
			}
		}
	})
}

func TestPooled_RequestsABlockForAllWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, _ := pools(t, 1, of(1000, fleet.Block(1)))
		mustAcquire(t, sems[0], 1)
		before, start := links[0].batches.Load(), time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { mustAcquire(t, sems[0], 1) })
		}
		wg.Wait()
		if n, took := links[0].batches.Load()-before, time.Since(start); n > 5 || took > 5*rtt {
			t.Errorf("%d batches and %v for 50 concurrent acquires", n, took)
		}
	})
}

func TestPooled_RequestsAgainIfTheStoreClockIsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := fastClockStore(t)
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		p := mustAcquire(t, semaphore(t, a, of(1)), 1)
		time.AfterFunc(9*time.Second, p.Release)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		q, err := semaphore(t, b, of(1, fleet.ModePooled)).Acquire(ctx, 1)
		wantErr(t, err, nil)
		q.Release()
	})
}

func TestPooled_QuantumLimitsRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, _ := pools(t, 2, of(2, fleet.Quantum(200*time.Millisecond)))
		long := mustAcquire(t, sems[0], 1) // the pool is recalled all the time
		var served [2]atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i, s := range sems {
			for range 5 { // the queue is never empty
				wg.Go(func() {
					for ctx.Err() == nil {
						p := mustAcquire(t, s, 1)
						time.Sleep(time.Millisecond)
						p.Release()
						served[i].Add(1)
					}
				})
			}
		}
		wg.Wait()
		for i := range served {
			if n, batches := served[i].Load(), links[i].batches.Load(); n < 1000 || batches > 200 {
				t.Errorf("pool %d served %d in 4 s with %d batches", i, n, batches)
			}
		}
		long.Release()
	})
}

func TestPooled_KeepsPermitsForItsFirstWaiterForAQuantum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 2, of(4, fleet.Quantum(200*time.Millisecond)))
		mustAcquire(t, sems[0], 4).Release()
		p := mustAcquire(t, sems[0], 1)
		time.Sleep(time.Second)
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, p.Release)
		go func() { mustAcquire(t, sems[1], 1).Release() }()
		all := mustAcquire(t, sems[0], 4)
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("waited %v for a permit that was released after 100 ms", took)
		}
		all.Release()
		time.Sleep(time.Second)
	})
}

func TestPooled_ReturnsUnusedPermitsByHalves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(64))
		mustAcquire(t, sems[0], 64).Release()
		for _, want := range []int64{64, 32, 16, 8} {
			time.Sleep(time.Second)
			if blocks := sems[0].Stats().Blocks; blocks != want {
				t.Errorf("%d permits are left, want %d", blocks, want)
			}
			time.Sleep(4 * time.Second) // a third of a TTL
		}
	})
}

func TestPooled_KeepsUpToTwiceItsCushion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(1000, fleet.Block(4)))
		mustAcquire(t, sems[0], 10)
		mustAcquire(t, sems[0], 3).Release()
		if blocks := sems[0].Stats().Blocks; blocks != 10+3+4 {
			t.Fatalf("the pool has %d permits", blocks)
		}
		time.Sleep(5 * time.Minute)
		if blocks := sems[0].Stats().Blocks; blocks != 10+3+4 { // 7 are free, the cushion is 4
			t.Errorf("the pool has %d permits, want 17: less than twice the cushion is free", blocks)
		}
	})
}
