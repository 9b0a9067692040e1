package fleet_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// A testRegion is a region with its link to the global store, and a client of the region.
type testRegion struct {
	local  *memstore.Store
	region *fleet.Region
	uplink *link
	client *fleet.Client
	near   *link
}

const (
	farRTT  = 80 * time.Millisecond
	quantum = 100 * time.Millisecond
)

// newTestRegion returns a region of a global store.
func newTestRegion(t *testing.T, global fleet.Store) *testRegion {
	t.Helper()
	c := &testRegion{local: memstore.New()}
	var up *fleet.Client
	up, c.uplink = newClient(t, global)
	c.uplink.delay = farRTT
	c.region = fleet.NewRegion(c.local, up, quantum)
	t.Cleanup(func() { c.region.Close() })
	c.client, c.near = newClient(t, unclosedRegion{c.region})
	c.near.delay = time.Millisecond
	return c
}

// An unclosedRegion is a region that is not closed with its clients.
type unclosedRegion struct{ *fleet.Region }

func (unclosedRegion) Close() error { return nil }

func (c *testRegion) semaphore(t *testing.T, o spec) *fleet.Semaphore {
	return semaphore(t, c.client, o)
}

func TestRegion_RegionsShareTheGlobalCapacity(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			const capacity = 9
			global := memstore.New()
			var held meter
			var served [3]atomic.Int64
			var wg sync.WaitGroup
			for i := range 3 {
				c := newTestRegion(t, global)
				mode := fleet.Mode(i % 2)
				s := c.semaphore(t, of(capacity, mode))
				for k := range 6 {
					rng := rand.New(rand.NewPCG(seed, uint64(10*i+k)))
					wg.Go(func() {
						for range 25 {
							n := 1 + rng.Int64N(3)
							p := mustAcquire(t, s, n)
							wantErr(t, p.Err(), nil)
							served[i].Add(1)
							held.add(n)
							time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
							held.add(-n)
							p.Release()
							time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
						}
					})
				}
			}
			wg.Wait()
			if most := held.most.Load(); most > capacity {
				t.Errorf("seed %d: %d of %d were held", seed, most, capacity)
			}
			time.Sleep(2 * time.Minute) // unused permits are returned
			if used, waiting := inUse(t, global); used != 0 || waiting != 0 {
				t.Errorf("seed %d: %d in use, %d waiting", seed, used, waiting)
			}
		})
	}
}

func TestRegion_ServesWithoutTheGlobalStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestRegion(t, memstore.New())
		s := c.semaphore(t, of(10))
		mustAcquire(t, s, 2).Release()
		before := c.uplink.batches.Load()
		if share, ok := c.region.Share("db"); !ok || share.Held < 2 || share.Left <= 0 || share.Recalled {
			t.Errorf("share %+v, %v", share, ok)
		}
		start := time.Now()
		for range 100 {
			mustAcquire(t, s, 1).Release()
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("100 acquires took %v", took)
		}
		if n := c.uplink.batches.Load() - before; n > 2 {
			t.Errorf("%d batches to the global store", n)
		}
	})
}

func TestRegion_CutOffRegionLosesPermitsBeforeOthersGetThem(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			global := memstore.New()
			a, b := newTestRegion(t, global), newTestRegion(t, global)
			o := of(4, fleet.TTL(6*time.Second), mode)
			p := mustAcquire(t, a.semaphore(t, o), 4)
			for range 20 { // at a random time between heartbeats
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
				wantErr(t, p.Err(), nil)
			}
			a.uplink.cut.Store(true)
			got := make(chan sema.Permit)
			go func() { got <- mustAcquire(t, b.semaphore(t, o), 1) }()
			select {
			case <-p.Lost():
			case <-got:
				t.Fatal("another client got the permit before the first holder was notified")
			}
			q := <-got
			wantErr(t, p.Err(), sema.ErrLost)
			// A region that is cut off grants nothing.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := a.client.Semaphore("db", o.capacity, o.opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := a.semaphore(t, o).Acquire(ctx, 1); err == nil {
				t.Error("a region that is cut off grants permits")
			}
			a.uplink.cut.Store(false)
			r := mustAcquire(t, a.semaphore(t, o), 3)
			wantErr(t, q.Err(), nil)
			q.Release()
			r.Release()
		})
	}
}

func TestRegion_BlocksMoveToTheRegionInNeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newTestRegion(t, global), newTestRegion(t, global)
		o := of(10)
		first := mustAcquire(t, a.semaphore(t, o), 10)
		first.Release()
		start := time.Now()
		mustAcquire(t, b.semaphore(t, o), 10).Release() // none is held any more
		if took := time.Since(start); took > 8*farRTT {
			t.Errorf("waited %v for free permits", took)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 30 { // a needs more than the capacity
			wg.Go(func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, a.semaphore(t, o), 1)
					time.Sleep(50 * time.Millisecond)
					p.Release()
				}
			})
		}
		time.Sleep(5 * time.Second)
		for range 3 {
			start := time.Now()
			p := mustAcquire(t, b.semaphore(t, o), 2)
			if took := time.Since(start); took > quantum+50*time.Millisecond+8*farRTT {
				t.Errorf("waited %v for its share", took)
			}
			p.Release()
			time.Sleep(30 * time.Second)
		}
		cancel()
		wg.Wait()
	})
}

func TestRegion_HeavyRequestsOfAllRegionsAreServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		var wg sync.WaitGroup
		for i := range 3 {
			c := newTestRegion(t, global)
			s := c.semaphore(t, of(4))
			for k := range 3 {
				wg.Go(func() {
					for range 10 {
						p := mustAcquire(t, s, int64(1+(i+k)%4))
						time.Sleep(10 * time.Millisecond)
						p.Release()
					}
				})
			}
		}
		wg.Wait()
	})
}

func TestRegion_RestartTakesOverHeldPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newTestRegion(t, global)
		o := of(4, fleet.TTL(6*time.Second))
		p := mustAcquire(t, a.semaphore(t, o), 3)
		// The process ends and loses its blocks. Its local store continues.
		a.uplink.cut.Store(true)
		up, uplink := newClient(t, global)
		uplink.delay = farRTT
		again := fleet.NewRegion(a.local, up, quantum)
		t.Cleanup(func() { again.Close() })
		a.near.Store = unclosedRegion{again}
		other, _ := newClient(t, global)
		if _, err := semaphore(t, other, o).TryAcquire(t.Context(), 2); err == nil {
			t.Fatal("held permits are granted again")
		}
		time.Sleep(time.Minute)
		used, _ := inUse(t, global)
		if held := p.Weight(); p.Err() == nil && used < held {
			t.Errorf("%d permits are held, %d leased", held, used)
		}
		p.Release()
		q := mustAcquire(t, a.semaphore(t, o), 4)
		wantErr(t, q.Err(), nil)
		q.Release()
	})
}

func TestRegion_Administer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newTestRegion(t, global), newTestRegion(t, global)
		o := of(4)
		s := a.semaphore(t, o)
		mustAcquire(t, s, 1).Release()
		_, err := s.Acquire(t.Context(), 5)
		wantErr(t, err, sema.ErrTooLarge)
		wantErr(t, b.client.Configure(t.Context(), "db", func(*fleet.Config) {}), fs.ErrNotExist)
		wantErr(t, a.client.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 6 }), nil)
		p := mustAcquire(t, s, 6)
		q := make(chan error)
		go func() {
			_, err := b.semaphore(t, o).Acquire(context.Background(), 1)
			q <- err
		}()
		time.Sleep(time.Second)
		snapshot, err := a.client.Info(t.Context(), "db")
		wantErr(t, err, nil)
		if snapshot.Config.Capacity != 6 || snapshot.InUse != 6 || snapshot.Effective > 6 {
			t.Errorf("%+v", snapshot)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, a.client.Drain(ctx, "db"), context.DeadlineExceeded)
		p.Release()
		wantErr(t, <-q, nil) // b does not drain
		wantErr(t, a.client.Drain(t.Context(), "db"), nil)
		names, err := a.client.List(t.Context(), "")
		if err != nil || fmt.Sprint(names) != "[db]" {
			t.Errorf("%v, %v", names, err)
		}
		wantErr(t, a.client.Delete(t.Context(), "db"), nil)
		_, err = a.client.Info(t.Context(), "db")
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestRegion_RegionsShareARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		var mu sync.Mutex
		var spent []time.Time
		var wg sync.WaitGroup
		for range 3 {
			c := newTestRegion(t, global)
			s := c.semaphore(t, of(10, fleet.Rate(time.Second)))
			for range 5 {
				wg.Go(func() {
					for range 10 {
						mustAcquire(t, s, 1)
						mu.Lock()
						spent = append(spent, time.Now())
						mu.Unlock()
					}
				})
			}
		}
		start := time.Now()
		wg.Wait()
		// The reply to a grant may arrive a little later.
		for i := range spent {
			if i >= 10 && spent[i].Sub(spent[i-10]) < time.Second-10*time.Millisecond {
				t.Errorf("more than 10 permits within %v", spent[i].Sub(spent[i-10]))
			}
		}
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("150 permits at 10 per second took %v", took)
		}
	})
}
