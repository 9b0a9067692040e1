package fleet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A countedRegion is a testRegion with a link to its local store, too.
type countedRegion struct {
	*testRegion
	locals *link
}

func newCountedRegion(t *testing.T, global, local fleet.Store) *countedRegion {
	c := &testRegion{}
	var up *fleet.Client
	up, c.uplink = newClient(t, global)
	c.uplink.delay = farRTT
	l := &link{Store: local}
	c.region = fleet.NewRegion(l, up, quantum)
	t.Cleanup(func() { c.region.Close() })
	c.client, c.near = newClient(t, unclosedRegion{c.region})
	c.near.delay = time.Millisecond
	return &countedRegion{c, l}
}

// A lossyStore can lose one reply to the region's own session.
type lossyStore struct {
	fleet.Store
	mu     sync.Mutex
	region map[protocol.Session]bool
	lose   bool
}

func newLossyStore() *lossyStore {
	return &lossyStore{Store: memstore.New(), region: map[protocol.Session]bool{}}
}

func (d *lossyStore) loseOne() { d.mu.Lock(); d.lose = true; d.mu.Unlock() }

func (d *lossyStore) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	id, c, err := d.Store.Open(ctx, name, c, by)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.region[id] = by.Client.Kind == "region"
	return id, c, err
}

func (d *lossyStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	d.mu.Lock()
	lose := d.lose && d.region[b.Session]
	d.lose = d.lose && !lose
	d.mu.Unlock()
	if lose {
		<-ctx.Done()
		return protocol.Reply{}, context.Cause(ctx)
	}
	return d.Store.Apply(ctx, name, b)
}

func TestRegion_UsesTheStoredTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global, local := memstore.New(), memstore.New()
		region := func() (*fleet.Region, *fleet.Client) {
			up, _ := newClient(t, global)
			r := fleet.NewRegion(local, up, quantum)
			c, _ := newClient(t, unclosedRegion{r})
			return r, c
		}
		r0, c0 := region() // an earlier run, with a TTL of 30 s
		mustAcquire(t, semaphore(t, c0, of(4, fleet.TTL(30*time.Second))), 1).Release()
		time.Sleep(time.Minute)
		r0.Close()
		r1, c1 := region()
		p := mustAcquire(t, semaphore(t, c1, of(4, fleet.TTL(300*time.Millisecond))), 4) // the stored TTL applies
		time.Sleep(time.Second)
		other, _ := newClient(t, global)
		r1.Close()
		q := mustAcquire(t, semaphore(t, other, of(4, fleet.TTL(30*time.Second))), 4)
		if p.Err() == nil {
			l, _ := fleet.LeaseOf(p)
			t.Errorf("8 of 4 permits are held; the first holder's lease is valid for another %v", l.Left)
		}
		q.Release()
	})
}

func TestRegion_SpentRateOutlivesTheRegion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newTestRegion(t, global), newTestRegion(t, global)
		o := of(10, fleet.Rate(time.Hour), fleet.TTL(6*time.Second), sema.MaxWait(5*time.Minute))
		mustAcquire(t, a.semaphore(t, o), 10)
		a.region.Close() // or a crash, or a cut of the uplink
		if _, err := b.semaphore(t, o).Acquire(t.Context(), 10); err == nil {
			t.Error("20 permits were granted in a few minutes at a rate of 10 per hour")
		}
	})
}

func TestKeeper_ContinuesAfterALostMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global, local := memstore.New(), newLossyStore()
		a, b := newCountedRegion(t, global, local), newTestRegion(t, global)
		o := of(4)
		mustAcquire(t, a.semaphore(t, o), 4).Release()
		synctest.Wait()
		local.loseOne()
		time.Sleep(time.Hour)
		if _, err := b.semaphore(t, o).Acquire(t.Context(), 4); err != nil {
			t.Errorf("unused for an hour, but: %v", err)
		}
	})
}

func TestRegion_ConfigureEndsWithItsContext(t *testing.T) {
	t.Parallel()
	local := newLossyStore()
	up := fleet.New(memstore.New())
	defer up.Close(context.Background())
	r := fleet.NewRegion(local, up, quantum)
	defer r.Close()
	c := fleet.New(unclosedRegion{r})
	defer c.Close(context.Background(), fleet.CloseRelease)
	mustAcquire(t, semaphore(t, c, of(4, fleet.TTL(300*time.Millisecond))), 1).Release()
	local.loseOne()
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Configure(ctx, "db", func(c *fleet.Config) { c.MaxWaiters = 5 }) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("Configure has not returned 4 s after its context ended")
	}
}

func TestRegion_ReadsAChangedGlobalCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newTestRegion(t, global)
		admin, _ := newClient(t, global)
		s := a.semaphore(t, of(4))
		mustAcquire(t, s, 1).Release()
		time.Sleep(5 * time.Minute) // the region's session at the global store ends
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 8 }), nil)
		time.Sleep(time.Hour)
		_, err := s.Acquire(t.Context(), 8)
		wantErr(t, err, nil)
	})
}

func TestRegion_GlobalStoredCapacityApplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		admin, _ := newClient(t, global)
		mustAcquire(t, semaphore(t, admin, of(100)), 1).Release()
		_, err := newTestRegion(t, global).semaphore(t, of(4)).Acquire(t.Context(), 10)
		wantErr(t, err, nil)
	})
}

func TestRegion_GlobalDrainReachesRegions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		admin, _ := newClient(t, global)
		s := newTestRegion(t, global).semaphore(t, of(4))
		mustAcquire(t, s, 2).Release()
		wantErr(t, admin.Drain(t.Context(), "db"), nil)
		start := time.Now()
		if _, err := s.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestRegion_DeletedSemaphoreIsCreatedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestRegion(t, memstore.New())
		mustAcquire(t, a.semaphore(t, of(4)), 2).Release()
		wantErr(t, a.client.Delete(t.Context(), "db"), nil)
		other, _ := newClient(t, unclosedRegion{a.region})
		_, err := semaphore(t, other, of(8)).Acquire(t.Context(), 1)
		wantErr(t, err, nil)
	})
}

func TestRegion_ConfigureRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestRegion(t, memstore.New())
		mustAcquire(t, a.semaphore(t, of(4)), 2).Release()
		time.Sleep(time.Second)
		wantErr(t, a.client.Configure(t.Context(), "db", func(c *fleet.Config) {
			if !c.Draining { // meanwhile another client drains
				go a.client.Configure(t.Context(), "db", func(c *fleet.Config) { c.Draining = true })
				time.Sleep(time.Second)
			}
			c.MaxWaiters = 7
		}), nil)
		got, err := a.client.Info(t.Context(), "db")
		wantErr(t, err, nil)
		if !got.Config.Draining {
			t.Error("a concurrent change has undone the drain")
		}
	})
}

func TestRegion_RampIsNoMismatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		a := newTestRegion(t, memstore.New())
		mustAcquire(t, a.semaphore(t, of(4, fleet.Ramp(100), sema.Observe(&d))), 1).Release()
		time.Sleep(time.Second)
		if n := d.count(sema.EventMismatched); n > 0 {
			t.Errorf("%d mismatches were reported", n)
		}
	})
}

func TestRegion_RecallCausesFewBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newCountedRegion(t, global, memstore.New()), newTestRegion(t, global)
		o := of(1, sema.MaxWait(2*time.Hour))
		p := mustAcquire(t, a.semaphore(t, o), 1)
		go func() { mustAcquire(t, b.semaphore(t, o), 1).Release() }()
		time.Sleep(time.Minute)
		before := a.locals.batches.Load()
		time.Sleep(time.Hour)
		if n := a.locals.batches.Load() - before; n > 10000 {
			t.Errorf("%d batches in an hour without a change", n)
		}
		p.Release()
		time.Sleep(time.Minute)
	})
}

func TestRegion_RecallEndsWithTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newCountedRegion(t, global, memstore.New()), newTestRegion(t, global)
		o := of(1)
		p := mustAcquire(t, a.semaphore(t, o), 1)
		got := make(chan sema.Permit)
		go func() { got <- mustAcquire(t, b.semaphore(t, o), 1) }()
		time.Sleep(time.Second) // the region is recalled
		a.uplink.cut.Store(true)
		p.Release()
		(<-got).Release()
		a.uplink.cut.Store(false)
		time.Sleep(10 * time.Minute) // without a request
		before := a.locals.batches.Load()
		time.Sleep(time.Hour)
		if n := a.locals.batches.Load() - before; n > 2000 {
			t.Errorf("%d batches in an hour without a request", n)
		}
	})
}

func TestRegion_ClientOfACutOffRegionDoesNotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestRegion(t, memstore.New())
		near := &throttledStore{Store: unclosedRegion{a.region}}
		c, _ := newClient(t, near)
		p := mustAcquire(t, semaphore(t, c, of(4)), 1)
		a.uplink.cut.Store(true)
		<-p.Lost()
		if n := near.calls.Load(); n > 100 {
			t.Errorf("%d batches until the permit was lost", n)
		}
	})
}

// TestRegion_OpenDuringClose is useful with -race.
func TestRegion_OpenDuringClose(t *testing.T) {
	t.Parallel()
	for range 1000 {
		up := fleet.New(memstore.New())
		r := fleet.NewRegion(memstore.New(), up, quantum)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				r.Open(context.Background(), "db", protocol.Config{Capacity: 4, TTL: 1_000_000, Protocol: 1}, protocol.Opener{Client: protocol.Client{Instance: "i"}})
			})
		}
		wg.Go(func() { r.Close() })
		wg.Wait()
		up.Close(context.Background())
	}
}

// TestRegion_TwoClientsOpenAtOnce hangs if it fails: run it with -timeout.
func TestRegion_TwoClientsOpenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newCountedRegion(t, memstore.New(), memstore.New())
		a.locals.delay = time.Millisecond
		other, _ := newClient(t, unclosedRegion{a.region})
		first := a.semaphore(t, of(4))
		opened := make(chan error)
		go func() {
			_, err := first.Acquire(t.Context(), 1)
			opened <- err
		}()
		mustAcquire(t, semaphore(t, other, of(4)), 1)
		wantErr(t, <-opened, nil)
	})
}

func TestRegion_NotifiesTheSuccessorOfADeletedSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newTestRegion(t, global), newTestRegion(t, global)
		o := of(4)
		for range 5 {
			mustAcquire(t, a.semaphore(t, o), 4).Release()
			deleted := make(chan error)
			go func() { deleted <- a.client.Delete(context.Background(), "db") }()
			again, _ := newClient(t, unclosedRegion{a.region})
			p := mustAcquire(t, semaphore(t, again, o), 1)
			wantErr(t, <-deleted, nil)
			p.Release()
			q := mustAcquire(t, semaphore(t, again, o), 4)
			time.AfterFunc(time.Second, q.Release)
			start := time.Now()
			mustAcquire(t, b.semaphore(t, o), 4).Release()
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("waited %v: the region was not recalled", took)
			}
		}
	})
}
