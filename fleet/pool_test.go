package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

const rtt = 10 * time.Millisecond

// pools returns pooled semaphores of n clients of one store, a round trip away.
func pools(t *testing.T, n int, o spec) ([]*fleet.Semaphore, []*link, *memstore.Store) {
	t.Helper()
	store := memstore.New()
	o = o.with(fleet.ModePooled)
	var sems []*fleet.Semaphore
	var links []*link
	for range n {
		c, l := newClient(t, store)
		l.delay = rtt
		sems, links = append(sems, semaphore(t, c, o)), append(links, l)
	}
	return sems, links, store
}

// A meter counts held permits, and their maximum.
type meter struct{ now, most atomic.Int64 }

func (m *meter) add(n int64) {
	now := m.now.Add(n)
	for most := m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); most = m.most.Load() {
	}
}

func TestPooled_ServesWithoutTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, _ := pools(t, 1, of(10))
		mustAcquire(t, sems[0], 4).Release()
		before := links[0].batches.Load()
		start := time.Now()
		for range 1000 {
			p := mustAcquire(t, sems[0], 2)
			wantErr(t, p.Err(), nil)
			p.Release()
		}
		if n, took := links[0].batches.Load()-before, time.Since(start); n > 0 || took > 0 {
			t.Errorf("%d batches and %v for permits that the pool has", n, took)
		}
	})
}

func TestPooled_KeepsTheBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			const capacity = 6
			sems, _, store := pools(t, 4, of(capacity, fleet.Quantum(20*time.Millisecond)))
			var held meter
			var served [4]atomic.Int64
			var wg sync.WaitGroup
			for i, s := range sems {
				for k := range 5 {
					rng := rand.New(rand.NewPCG(seed, uint64(i*10+k)))
					wg.Go(func() {
						for range 30 {
							n := 1 + rng.Int64N(3)
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(3000))*time.Millisecond)
							p, err := s.Acquire(ctx, n)
							cancel()
							if err == nil {
								served[i].Add(1)
								held.add(n)
								time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
								held.add(-n)
								p.Release()
							}
							time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
						}
					})
				}
			}
			wg.Wait()
			if most := held.most.Load(); most > capacity {
				t.Errorf("seed %d: %d of %d were held", seed, most, capacity)
			}
			for i := range served {
				if served[i].Load() < 100 {
					t.Errorf("seed %d: client %d was served %d times of 150", seed, i, served[i].Load())
				}
			}
			time.Sleep(time.Minute) // unused permits are returned
			if used, waiting := inUse(t, store); used != 0 || waiting != 0 {
				t.Errorf("seed %d: %d in use, %d waiting", seed, used, waiting)
			}
		})
	}
}

func TestPooled_UnusedPermitsGoToWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 2, of(8))
		for range 3 { // the pool grows
			p, q := mustAcquire(t, sems[0], 4), mustAcquire(t, sems[0], 1)
			p.Release()
			q.Release()
		}
		held := mustAcquire(t, sems[0], 1)
		if blocks := sems[0].Stats().Blocks; blocks < 5 {
			t.Fatalf("the pool has %d permits, want at least 5", blocks)
		}
		start := time.Now()
		p := mustAcquire(t, sems[1], 7)
		if took := time.Since(start); took > 50*time.Millisecond+4*rtt {
			t.Errorf("waited %v for unused permits, want some round trips and at most a quantum", took)
		}
		wantErr(t, held.Err(), nil)
		p.Release()
		held.Release()
	})
}

func TestPooled_BusyPoolKeepsABlockForOneQuantum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const quantum, hold = 200 * time.Millisecond, 30 * time.Millisecond
		sems, _, _ := pools(t, 2, of(3, fleet.Quantum(quantum)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 8 { // the queue is never empty
			wg.Go(func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, sems[0], 1)
					time.Sleep(hold)
					p.Release()
				}
			})
		}
		time.Sleep(time.Second)
		for range 5 {
			start := time.Now()
			p := mustAcquire(t, sems[1], 1)
			if took := time.Since(start); took > quantum+hold+6*rtt {
				t.Errorf("waited %v, want a quantum, a hold and some round trips", took)
			}
			p.Release()
			time.Sleep(time.Second)
		}
		cancel()
		wg.Wait()
	})
}

func TestPooled_LongHoldersDoNotBlockTheirPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 2, of(4))
		long := mustAcquire(t, sems[0], 3)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, sems[1], 1)
					time.Sleep(50 * time.Millisecond)
					p.Release()
				}
			})
		}
		time.Sleep(time.Second)
		for range 5 {
			start := time.Now()
			mustAcquire(t, sems[0], 1).Release()
			if took := time.Since(start); took > time.Second {
				t.Errorf("waited %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		wantErr(t, long.Err(), nil)
		long.Release()
		cancel()
		wg.Wait()
	})
}

func TestPooled_HeavyRequestsOfAllPoolsAreServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 3, of(4, sema.MaxWait(10*time.Second)))
		var wg sync.WaitGroup
		for i, s := range sems {
			for range 3 {
				wg.Go(func() {
					for range 20 {
						p := mustAcquire(t, s, 2+int64(i))
						time.Sleep(5 * time.Millisecond)
						p.Release()
					}
				})
			}
		}
		wg.Wait()
	})
}

func TestPooled_ServesItsCallersInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 2, of(2, fleet.Quantum(20*time.Millisecond)))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		p := mustAcquire(t, sems[0], 2)
		for i := range 30 {
			wg.Go(func() {
				q := mustAcquire(t, sems[0], 1+int64(i%2))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(15 * time.Millisecond)
				q.Release()
			})
			synctest.Wait()
		}
		wg.Go(func() { // forces new generations
			for range 10 {
				q := mustAcquire(t, sems[1], 1)
				time.Sleep(10 * time.Millisecond)
				q.Release()
			}
		})
		p.Release()
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestPooled_IsLostWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, _ := pools(t, 2, of(2, fleet.TTL(3*time.Second)))
		p := mustAcquire(t, sems[0], 1)
		fence, ok := fleet.LeaseOf(p)
		if !ok || fence.Fence.Seq == 0 || fence.Left <= time.Second || fence.Semaphore != "db" {
			t.Fatalf("%+v, %v", fence, ok)
		}
		links[0].cut.Store(true)
		<-p.Lost()
		wantErr(t, p.Err(), sema.ErrLost)
		waiting := make(chan sema.Permit)
		go func() { waiting <- mustAcquire(t, sems[0], 1) }()
		all := mustAcquire(t, sems[1], 2)
		var guard fleet.Guard
		other, _ := fleet.LeaseOf(all)
		wantErr(t, guard.Admit(other.Fence), nil)
		wantErr(t, guard.Admit(fence.Fence), sema.ErrLost)
		links[0].cut.Store(false)
		time.Sleep(5 * time.Second)
		all.Release()
		q := <-waiting
		wantErr(t, q.Err(), nil)
		p.Release()
		q.Release()
		wantErr(t, p.Err(), nil)
	})
}

func TestPooled_RevokedBlockIsLostAsAWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(4))
		p := mustAcquire(t, sems[0], 2)
		admin, _ := newClient(t, store)
		lease, _ := fleet.LeaseOf(p)
		wantErr(t, admin.Revoke(t.Context(), "db", fleet.Revocation{Lease: lease.ID, By: "ops", Why: "stuck"}), nil)
		<-p.Lost()
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), "revoked by ops: stuck") {
			t.Errorf("%v", err)
		}
		mustAcquire(t, sems[1], 4).Release()
		p.Release()
		mustAcquire(t, sems[0], 4).Release()
	})
}

func TestPooled_DrainReturnsAllPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 1, of(4))
		admin, _ := newClient(t, store)
		p := mustAcquire(t, sems[0], 3)
		waiting := make(chan error)
		go func() {
			_, err := sems[0].Acquire(context.Background(), 4)
			waiting <- err
		}()
		time.Sleep(time.Second)
		drained := make(chan error)
		go func() { drained <- admin.Drain(context.Background(), "db") }()
		wantErr(t, <-waiting, sema.ErrDraining)
		for _, n := range []int64{0, 1} {
			_, err := sems[0].Acquire(context.Background(), n)
			wantErr(t, err, sema.ErrDraining)
		}
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, <-drained, nil)
		wantErr(t, admin.Resume(context.Background(), "db"), nil)
		time.Sleep(20 * time.Second)
		mustAcquire(t, sems[0], 4).Release()
	})
}

func TestPooled_ShrinkRecallsUnusedPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 1, of(8))
		admin, _ := newClient(t, store)
		p := mustAcquire(t, sems[0], 8)
		p.Release()
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 2 }), nil)
		time.Sleep(time.Second)
		if used, _ := inUse(t, store); used > 2 {
			t.Errorf("%d permits are in use at the store, and none is held", used)
		}
		_, err := sems[0].Acquire(t.Context(), 3)
		wantErr(t, err, sema.ErrTooLarge)
	})
}

func TestPooled_WaitsEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(2, sema.MaxWaiters(2), sema.MaxWait(5*time.Second)))
		all := mustAcquire(t, sems[1], 2)
		_, err := sems[0].TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		ended := make(chan error)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, fmt.Errorf("enough"))
		defer cancel()
		go func() {
			_, err := sems[0].Acquire(ctx, 1)
			ended <- err
		}()
		synctest.Wait()
		go func() {
			_, err := sems[0].Acquire(context.Background(), 2)
			ended <- err
		}()
		synctest.Wait()
		_, err = sems[0].Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		_, err = sems[0].TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		start := time.Now()
		if err := <-ended; err == nil || err.Error() != "enough" || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		wantErr(t, <-ended, sema.ErrTimeout)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("after %v", took)
		}
		time.Sleep(time.Second)
		if _, waiting := inUse(t, store); waiting != 0 {
			t.Errorf("%d requests are still queued", waiting)
		}
		all.Release()
		p, err := sems[0].TryAcquire(t.Context(), 2)
		for ; err != nil; p, err = sems[0].TryAcquire(t.Context(), 2) { // until the recall arrives
			time.Sleep(time.Second)
		}
		p.Release()
	})
}

func TestPooled_CloseReturnsAllPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s, err := c.Semaphore("db", 5, fleet.ModePooled)
		wantErr(t, err, nil)
		p := mustAcquire(t, s, 3)
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		time.Sleep(time.Second)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrClosed)
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, <-closed, nil)
		if used, _ := inUse(t, store); used != 0 {
			t.Errorf("%d in use", used)
		}
	})
}

func TestPooled_ReportsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		kinds := map[sema.EventKind]int{}
		sems, links, _ := pools(t, 1, of(2, fleet.TTL(3*time.Second), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
		}))))
		p, q, err := mustAcquire(t, sems[0], 2).Split(1)
		wantErr(t, err, nil)
		if l, ok := fleet.LeaseOf(p); !ok || l.ID == 0 {
			t.Errorf("%+v", l)
		}
		go func() { mustAcquire(t, sems[0], 1) }()
		synctest.Wait()
		p.Release()
		synctest.Wait()
		links[0].cut.Store(true)
		time.Sleep(5 * time.Second)
		wantErr(t, q.Err(), sema.ErrLost)
		mu.Lock()
		defer mu.Unlock()
		for kind, want := range map[sema.EventKind]int{sema.EventAcquired: 2, sema.EventQueued: 2, sema.EventReleased: 1, sema.EventLost: 1} {
			if kinds[kind] != want {
				t.Errorf("%d × %v, want %d", kinds[kind], kind, want)
			}
		}
	})
}
