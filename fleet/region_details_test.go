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
)

func TestRegion_IsNotRecalledWithoutASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a, b := newTestRegion(t, global), newTestRegion(t, global)
		o := of(1)
		mustAcquire(t, a.semaphore(t, o), 1)
		go b.semaphore(t, o).Acquire(t.Context(), 1)
		time.Sleep(time.Second)
		if share, _ := a.region.Share("db"); !share.Recalled || share.Held != 1 || share.InUse != 1 {
			t.Fatalf("%+v", share)
		}
		a.uplink.cut.Store(true)
		time.Sleep(15 * time.Second)
		if share, _ := a.region.Share("db"); share.Recalled || share.Held != 0 || share.Left != 0 {
			t.Errorf("share %+v after the session was lost", share)
		}
	})
}

func TestRegion_RevokedBlockNotifiesHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newTestRegion(t, global)
		admin, _ := newClient(t, global)
		o := of(4)
		p, q := mustAcquire(t, a.semaphore(t, o), 2), mustAcquire(t, a.semaphore(t, o), 2)
		time.Sleep(time.Second)
		snapshot, err := global.Inspect(t.Context(), "db")
		wantErr(t, err, nil)
		if len(snapshot.Leases) < 2 {
			t.Fatalf("leases %+v, want a second block", snapshot.Leases)
		}
		block := snapshot.Leases[1]
		wantErr(t, admin.Revoke(t.Context(), "db", fleet.Revocation{Lease: block.Seq, AtOnce: true}), nil)
		other := mustAcquire(t, semaphore(t, admin, o), block.Weight)
		time.Sleep(20 * time.Second)
		if p.Err() == nil && q.Err() == nil && other.Err() == nil {
			t.Errorf("%d of 4 are held", 4+block.Weight)
		}
		other.Release()
	})
}

func TestRegion_ReturnsOnlyUnusedBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newCountedRegion(t, global, slowAdminStore{memstore.New(), 300 * time.Millisecond})
		b := newTestRegion(t, global)
		o := of(8)
		s := a.semaphore(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, s, 1)
					time.Sleep(time.Duration(10+7*i) * time.Millisecond)
					p.Release()
					time.Sleep(time.Duration(20+9*i) * time.Millisecond)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					p := mustAcquire(t, b.semaphore(t, o), 1)
					time.Sleep(time.Duration(30+11*i) * time.Millisecond)
					p.Release()
					time.Sleep(time.Duration(90*i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := s.Stats().Failures; n > 0 { // more permits were in use than leased
			t.Errorf("the region failed to reply %d times", n)
		}
	})
}

func TestRegion_RestartReadsTheGlobalCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newTestRegion(t, global)
		mustAcquire(t, a.semaphore(t, of(4)), 1).Release()
		time.Sleep(time.Minute)
		up, _ := newClient(t, global)
		wantErr(t, up.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 8 }), nil)
		again := fleet.NewRegion(unclosedStore{a.local}, up, quantum)
		t.Cleanup(func() { again.Close() })
		snapshot, err := again.Inspect(t.Context(), "db") // before a client uses it
		wantErr(t, err, nil)
		if snapshot.Config.Capacity != 8 {
			t.Errorf("capacity %d, want 8", snapshot.Config.Capacity)
		}
	})
}

func TestRegion_HeavyFirstWaiterCausesFewBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newCountedRegion(t, memstore.New(), memstore.New())
		a.locals.delay = time.Millisecond
		s := a.semaphore(t, of(4, sema.MaxWait(2*time.Hour)))
		p := mustAcquire(t, s, 1)
		go func() { mustAcquire(t, s, 4).Release() }()
		time.Sleep(10 * time.Second)
		before := a.locals.batches.Load()
		time.Sleep(time.Minute)
		if n := a.locals.batches.Load() - before; n > 200 {
			t.Errorf("%d batches in a minute without a change", n)
		}
		p.Release()
		time.Sleep(10 * time.Second)
	})
}

func TestRegion_GlobalDrainIsNotKeptAfterResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		global := memstore.New()
		a := newTestRegion(t, global)
		admin, _ := newClient(t, global)
		s := a.semaphore(t, of(4))
		mustAcquire(t, s, 1).Release()
		wantErr(t, admin.Drain(t.Context(), "db"), nil)
		time.Sleep(20 * time.Second)
		wantErr(t, a.client.Configure(t.Context(), "db", func(c *fleet.Config) { c.MaxWaiters = 7 }), nil)
		wantErr(t, admin.Resume(t.Context(), "db"), nil)
		time.Sleep(10 * time.Minute)
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, nil)
	})
}
