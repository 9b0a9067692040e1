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

// A continent is a region with its link to the global engine, and a client in
// it.
type continent struct {
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

// newContinent makes a region of a global store.
func newContinent(t *testing.T, global fleet.Store) *continent {
	t.Helper()
	c := &continent{local: memstore.New()}
	var up *fleet.Client
	up, c.uplink = join(t, global)
	c.uplink.delay = farRTT
	c.region = fleet.NewRegion(c.local, up, quantum)
	t.Cleanup(func() { c.region.Close() })
	c.client, c.near = join(t, keepOpen{c.region})
	c.near.delay = time.Millisecond
	return c
}

// keepOpen is a store that outlives its clients.
type keepOpen struct{ *fleet.Region }

func (keepOpen) Close() error { return nil }

func (c *continent) semaphore(t *testing.T, o spec) *fleet.Semaphore {
	return semaphore(t, c.client, o)
}

func TestRegionsShareTheCapacityOfTheWhole(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			const capacity = 9
			global := memstore.New()
			var out meter
			var served [3]atomic.Int64
			var wg sync.WaitGroup
			for i := range 3 {
				c := newContinent(t, global)
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
							out.add(n)
							time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
							out.add(-n)
							p.Release()
							time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
						}
					})
				}
			}
			wg.Wait()
			if most := out.most.Load(); most > capacity {
				t.Errorf("seed %d: %d of %d were out", seed, most, capacity)
			}
			time.Sleep(2 * time.Minute) // what nobody uses goes back
			if taken, waiting := inUse(t, global); taken != 0 || waiting != 0 {
				t.Errorf("seed %d: %d taken, %d wait", seed, taken, waiting)
			}
		})
	}
}

func TestARegionIsServedNearby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newContinent(t, memstore.New())
		s := c.semaphore(t, of(10))
		mustAcquire(t, s, 2).Release()
		before := c.uplink.batches.Load()
		if share, ok := c.region.Share("db"); !ok || share.Held < 2 || share.Left <= 0 || share.Recalled {
			t.Errorf("the region has %+v, %v", share, ok)
		}
		start := time.Now()
		for range 100 {
			mustAcquire(t, s, 1).Release()
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a hundred acquires took %v", took)
		}
		if n := c.uplink.batches.Load() - before; n > 2 {
			t.Errorf("%d batches to the global engine", n)
		}
	})
}

func TestARegionThatIsCutOffLosesItsPermitsBeforeOthersHaveThem(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			global := memstore.New()
			a, b := newContinent(t, global), newContinent(t, global)
			o := of(4, fleet.TTL(6*time.Second), mode)
			p := mustAcquire(t, a.semaphore(t, o), 4)
			for range 20 { // at whatever moment of its heartbeats
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
				wantErr(t, p.Err(), nil)
			}
			a.uplink.cut.Store(true)
			got := make(chan sema.Permit)
			go func() { got <- mustAcquire(t, b.semaphore(t, o), 1) }()
			select {
			case <-p.Lost():
			case <-got:
				t.Fatal("others have it, and the first holder does not know")
			}
			q := <-got
			wantErr(t, p.Err(), sema.ErrLost)
			// Cut off, the region lends nothing.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := a.client.Semaphore("db", o.capacity, o.opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := a.semaphore(t, o).Acquire(ctx, 1); err == nil {
				t.Error("a region that is cut off lends permits")
			}
			a.uplink.cut.Store(false)
			r := mustAcquire(t, a.semaphore(t, o), 3)
			wantErr(t, q.Err(), nil)
			q.Release()
			r.Release()
		})
	}
}

func TestARegionsBlockGoesWhereItIsWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newContinent(t, global), newContinent(t, global)
		o := of(10)
		first := mustAcquire(t, a.semaphore(t, o), 10)
		first.Release()
		start := time.Now()
		mustAcquire(t, b.semaphore(t, o), 10).Release() // nobody uses it any more
		if took := time.Since(start); took > 8*farRTT {
			t.Errorf("waited %v for what is free", took)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 30 { // a is busier than all there is
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

func TestHeavyWishesOfRegionsAreAllServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		var wg sync.WaitGroup
		for i := range 3 {
			c := newContinent(t, global)
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

func TestARegionBeginsAnewWithWhatItHadLent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newContinent(t, global)
		o := of(4, fleet.TTL(6*time.Second))
		p := mustAcquire(t, a.semaphore(t, o), 3)
		// The process is gone, and what it knew of blocks; its engine is not.
		a.uplink.cut.Store(true)
		up, uplink := join(t, global)
		uplink.delay = farRTT
		again := fleet.NewRegion(a.local, up, quantum)
		t.Cleanup(func() { again.Close() })
		a.near.Store = keepOpen{again}
		other, _ := join(t, global)
		if _, err := semaphore(t, other, o).TryAcquire(t.Context(), 2); err == nil {
			t.Fatal("what is lent is not taken")
		}
		time.Sleep(time.Minute)
		taken, _ := inUse(t, global)
		if held := p.Weight(); p.Err() == nil && taken < held {
			t.Errorf("%d are held, %d leased", held, taken)
		}
		p.Release()
		q := mustAcquire(t, a.semaphore(t, o), 4)
		wantErr(t, q.Err(), nil)
		q.Release()
	})
}

func TestAdministeringARegion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newContinent(t, global), newContinent(t, global)
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

func TestARateIsSharedByRegions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		var mu sync.Mutex
		var spent []time.Time
		var wg sync.WaitGroup
		for range 3 {
			c := newContinent(t, global)
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
		// What the engine has granted may be heard of a little later.
		for i := range spent {
			if i >= 10 && spent[i].Sub(spent[i-10]) < time.Second-10*time.Millisecond {
				t.Errorf("more than ten within %v", spent[i].Sub(spent[i-10]))
			}
		}
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("150 at 10 a second took %v", took)
		}
	})
}
