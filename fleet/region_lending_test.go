package fleet_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// regionOver returns a region that leases through a shared client, and a client of the region.
func regionOver(t *testing.T, global *fleet.Client) (*fleet.Region, *fleet.Client) {
	t.Helper()
	r := fleet.NewRegion(memstore.New(), global, quantum)
	t.Cleanup(func() { r.Close() })
	c, _ := newClient(t, unclosedRegion{r})
	return r, c
}

func TestRegion_DoesNotLeaseFromARate(t *testing.T) {
	t.Parallel()
	for _, regional := range [][]fleet.Option{nil, {fleet.Rate(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			global := memstore.New()
			direct, _ := newClient(t, global)
			mustAcquire(t, semaphore(t, direct, of(4, fleet.Rate(time.Minute))), 1)
			a := newTestRegion(t, global)
			_, err := a.semaphore(t, of(4, regional...)).Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrInvalid)
			if err == nil || !strings.Contains(sema.Hint(err), "use another name") {
				t.Errorf("%v has no hint", err)
			}
		})
	}
}

func TestRegion_DoesNotLeaseFromASemaphoreThatBecameARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		direct, _ := newClient(t, global)
		a := newTestRegion(t, global)
		s := a.semaphore(t, of(4, sema.MaxWait(time.Hour)))
		p := mustAcquire(t, s, 1)
		wantErr(t, direct.Delete(t.Context(), "db"), nil)
		mustAcquire(t, semaphore(t, direct, of(4, fleet.Rate(time.Minute))), 1)
		<-p.Lost()
		p.Release()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if _, err := s.Acquire(ctx, 1); err == nil {
			t.Error("the region grants permits of a rate")
		}
	})
}

func TestRegion_RateNeedsAGlobalTTLOfThreeWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		direct, _ := newClient(t, global)
		mustAcquire(t, semaphore(t, direct, of(4, fleet.TTL(6*time.Second))), 1).Release()
		a := newTestRegion(t, global)
		_, err := a.semaphore(t, of(4, fleet.Rate(time.Minute))).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "3m0s") {
			t.Errorf("%v does not contain the required TTL", err)
		}
	})
}

func TestRegion_RegionsOfOneClientShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global, _ := newClient(t, memstore.New())
		o := of(4, sema.MaxWait(10*time.Minute))
		_, busy := regionOver(t, global)
		_, other := regionOver(t, global)
		s, far := semaphore(t, busy, o), semaphore(t, other, o)
		ctx, cancel := context.WithCancel(t.Context())
		for range 12 {
			go func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, s, 1)
					time.Sleep(50 * time.Millisecond)
					p.Release()
				}
			}()
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		mustAcquire(t, far, 1).Release()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the other region waited %v", took)
		}
		cancel()
		time.Sleep(time.Minute)
	})
}

func TestRegion_IsIndependentOfOtherUsesOfItsClient(t *testing.T) {
	t.Parallel()
	for what, own := range map[string]spec{
		"pooled":    of(4, fleet.ModePooled),
		"fail open": of(4, fleet.FailOpen(4)),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				global, l := newClient(t, memstore.New())
				mine := semaphore(t, global, own)
				mustAcquire(t, mine, 1).Release()
				_, c := regionOver(t, global)
				s := semaphore(t, c, of(4, sema.MaxWait(time.Hour)))
				p := mustAcquire(t, s, 2)
				l.cut.Store(true)
				<-p.Lost()
				p.Release()
				time.Sleep(2 * time.Minute)
				l.cut.Store(false)
				mustAcquire(t, s, 4).Release() // all of them: the program's own pool returns its permits
				mustAcquire(t, mine, 4).Release()
			})
		})
	}
}

func TestRegion_ObserverMayCallShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global, _ := newClient(t, memstore.New())
		var region atomic.Pointer[fleet.Region]
		mine := semaphore(t, global, of(4, sema.Observe(sema.ObserverFunc(func(sema.Event) {
			if r := region.Load(); r != nil {
				r.Share("db")
			}
		}))))
		r, c := regionOver(t, global)
		region.Store(r)
		s := semaphore(t, c, of(4))
		for range 5 {
			mustAcquire(t, s, 3).Release()
			mustAcquire(t, mine, 3).Release()
			time.Sleep(time.Second)
		}
	})
}

// A hangingStore can stop replying to Inspect.
type hangingStore struct {
	fleet.Store
	hangs atomic.Bool
}

func (h *hangingStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return protocol.Snapshot{}, errCut
	}
	return h.Store.Inspect(ctx, name)
}

func TestKeeper_StopWhileTheStoreHangsReturnsBlocks(t *testing.T) {
	t.Parallel()
	for what, stop := range map[string]func(*fleet.Region, *fleet.Client) error{
		"delete": func(_ *fleet.Region, c *fleet.Client) error { return c.Delete(context.Background(), "db") },
		"close":  func(r *fleet.Region, _ *fleet.Client) error { return r.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				h := &hangingStore{Store: store}
				global, _ := newClient(t, h)
				r := fleet.NewRegion(memstore.New(), global, quantum)
				c, _ := newClient(t, unclosedRegion{r})
				mustAcquire(t, semaphore(t, c, of(4)), 4).Release()
				h.hangs.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				go c.Configure(ctx, "db", func(c *fleet.Config) { c.Capacity = 8 })
				synctest.Wait()
				start := time.Now()
				wantErr(t, stop(r, c), nil)
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(5 * time.Minute)
				if used, _ := inUse(t, store); used != 0 {
					t.Errorf("%d permits are in use at the store, and none is held", used)
				}
				r.Close()
			})
		})
	}
}

func TestRegion_SteadyUseCausesFewBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newCountedRegion(t, memstore.New(), memstore.New())
		s := a.semaphore(t, of(4))
		p := mustAcquire(t, s, 1)
		time.Sleep(10 * time.Second)
		before := a.locals.batches.Load()
		time.Sleep(time.Hour)
		if n := a.locals.batches.Load() - before; n > 2000 { // including heartbeats every 5 s
			t.Errorf("%d batches in an hour", n)
		}
		p.Release()
		time.Sleep(10 * time.Second)
		if info, _ := a.region.Share("db"); info.Held > 1 {
			t.Errorf("the region holds %d permits, and uses none", info.Held)
		}
	})
}

func TestKeeper_OneLostPollDelaysOtherRegionsBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global, local := memstore.New(), newLossyStore()
		a, b := newCountedRegion(t, global, local), newTestRegion(t, global)
		o := of(4, fleet.TTL(time.Second))
		p := mustAcquire(t, a.semaphore(t, o), 1)
		mustAcquire(t, b.semaphore(t, o), 1).Release()
		synctest.Wait()
		local.loseOne()
		time.Sleep(time.Second)
		start := time.Now()
		p.Release()
		q := mustAcquire(t, b.semaphore(t, o), 4)
		if took := time.Since(start); took > time.Second {
			t.Errorf("another region waited for %v with a TTL of 1 s", took)
		}
		q.Release()
	})
}
