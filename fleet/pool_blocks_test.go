package fleet_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

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

func TestPooled_EndsAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		asleep := func() time.Duration { return time.Duration(slept.Load()) }
		store := memstore.NewWithClock(func() time.Time { return time.Now().Add(asleep()) })
		a, conn := newClient(t, store)
		a.UseSuspendableClock(asleep)
		s := semaphore(t, a, of(1, fleet.ModePooled))
		mustAcquire(t, s, 1).Release()
		// The machine is suspended for ten minutes. Its boot clock continues, its timers do not.
		conn.cut.Store(true)
		for range 300 {
			slept.Add(int64(2 * time.Second))
			inUse(t, store) // others use the store meanwhile
		}
		b, _ := newClient(t, store)
		b.UseSuspendableClock(asleep)
		q := mustAcquire(t, semaphore(t, b, of(1)), 1)
		if p, err := s.TryAcquire(t.Context(), 1); err == nil { // the machine has just resumed
			wantErr(t, p.Err(), sema.ErrLost)
			p.Release()
		}
		wantErr(t, sema.Do(t.Context(), s, 1, func(context.Context) error {
			t.Error("Do calls the function with a lost permit")
			return nil
		}), sema.ErrLost)
		time.Sleep(200 * time.Millisecond)
		if s.Stats().Blocks > 0 {
			t.Error("the pool still has permits")
		}
		q.Release()
	})
}

// TestPooled_RevokedBlockOfARetiredGenerationIsDropped counts goroutines of the whole process, so it
// does not run in parallel.
func TestPooled_RevokedBlockOfARetiredGenerationIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		pooled := semaphore(t, a, of(1, fleet.ModePooled))
		exact := semaphore(t, b, of(1))
		for range 20 {
			p := mustAcquire(t, pooled, 1)
			done := make(chan struct{})
			go func() { mustAcquire(t, exact, 1).Release(); close(done) }()
			time.Sleep(time.Second) // recalled, and retired
			l, _ := fleet.LeaseOf(p)
			wantErr(t, b.Revoke(t.Context(), "db", fleet.Revocation{Lease: l.ID}), nil)
			<-done
			p.Release()
			time.Sleep(time.Second)
		}
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		if n := strings.Count(string(buf), "fleet.(*pooled).collect("); n > 1 {
			t.Errorf("%d goroutines wait for permits of dropped generations", n)
		}
	})
}
