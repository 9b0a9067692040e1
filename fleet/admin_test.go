package fleet_test

import (
	"context"
	"errors"
	"io/fs"
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

func TestClient_DrainRejectsAcquiresAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(1))
		p := mustAcquire(t, s, 1)
		waiting := make(chan error, 1)
		go func() {
			_, err := semaphore(t, b, of(1)).Acquire(context.Background(), 1)
			waiting <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wantErr(t, b.Drain(ctx, "db"), context.DeadlineExceeded)
		wantErr(t, <-waiting, sema.ErrDraining)
		_, err := s.TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrDraining)
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, b.Drain(context.Background(), "db"), nil)
		wantErr(t, a.Resume(context.Background(), "db"), nil)
		mustAcquire(t, s, 1).Release()
	})
}

func TestClient_ConfigureRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, memstore.New())
	semaphore(t, c, of(1))
	mustAcquire(t, semaphore(t, c, of(1)), 1).Release()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 20 {
				if err := c.Configure(context.Background(), "db", func(config *fleet.Config) { config.Capacity++ }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if snapshot, err := c.Info(context.Background(), "db"); err != nil || snapshot.Config.Capacity != 101 {
		t.Errorf("capacity %d %v, want 101", snapshot.Config.Capacity, err)
	}
	wantErr(t, c.Configure(context.Background(), "none", func(*fleet.Config) {}), fs.ErrNotExist)
	if err := c.Configure(context.Background(), "db", func(config *fleet.Config) { config.TTL = 1 }); err == nil {
		t.Error("the TTL was changed")
	}
}

func TestClient_RevokeFreesAndNotifies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		snapshot, err := c.Info(context.Background(), "db")
		wantErr(t, err, nil)
		for _, why := range []string{strings.Repeat("x", 1000), "two\nlines"} {
			wantErr(t, c.Revoke(context.Background(), "db", fleet.Revocation{Lease: snapshot.Holders[0].Lease, Why: why}), sema.ErrInvalid)
		}
		wantErr(t, p.Err(), nil)
		for name, want := range map[string]string{"db": "no lease 5", "other": "no such semaphore"} {
			err := c.Revoke(context.Background(), name, fleet.Revocation{Lease: 5})
			if wantErr(t, err, fs.ErrNotExist); !strings.Contains(err.Error(), want) || sema.Hint(err) == "" {
				t.Errorf("%s: %v, want %q and a hint", name, err, want)
			}
		}
		wantErr(t, c.Revoke(context.Background(), "db", fleet.Revocation{Lease: snapshot.Holders[0].Lease, AtOnce: false}), nil)
		mustAcquire(t, s, 1).Release()
		wantErr(t, p.Err(), sema.ErrLost)
	})
}

func TestClient_DeletedSemaphoreIsCreatedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		names, err := c.List(context.Background(), "d")
		if err != nil || !slices.Equal(names, []string{"db"}) {
			t.Errorf("%q %v", names, err)
		}
		wantErr(t, c.Delete(context.Background(), "db"), nil)
		<-p.Lost() // with the next heartbeat
		mustAcquire(t, s, 1).Release()
	})
}

func TestGuard_RejectsEndedLeasesOnly(t *testing.T) {
	t.Parallel()
	var g fleet.Guard
	fence := func(seq, floor protocol.Seq, revoked ...protocol.Range) protocol.Fence {
		return protocol.Fence{Seq: seq, Floor: floor, Revoked: revoked}
	}
	for i, step := range []struct {
		fence    protocol.Fence
		rejected bool
	}{
		{fence(5, 5), false},
		{fence(7, 5, protocol.Range{From: 6, To: 6}), false},
		{fence(6, 5), true},
		{fence(5, 5), false}, // still held
		{fence(12, 5, protocol.Range{From: 6, To: 6}, protocol.Range{From: 8, To: 11}), false},
		{fence(9, 5), true},
		{fence(7, 5), false},
		{fence(13, 7, protocol.Range{From: 8, To: 12}), false},
		{fence(5, 5), true},
		{fence(12, 5), true},
		{fence(13, 7), false},
		{fence(20, 20), false},
		{fence(13, 7), true},
	} {
		if err := g.Admit(step.fence); errors.Is(err, sema.ErrLost) != step.rejected {
			t.Errorf("step %d, %+v: %v", i, step.fence, err)
		}
	}
}

func TestSemaphore_TenantAtItsCapHoldsNoSharedPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		gate := func(name string, capacity int64) *fleet.Semaphore {
			s, err := c.Semaphore(name, capacity)
			wantErr(t, err, nil)
			return s
		}
		all := gate("api", 3)
		var whole meter
		var tenants [2]meter
		var wg sync.WaitGroup
		call := func(tenant int, hold time.Duration) {
			own := gate("api/"+string(rune('a'+tenant)), 2)
			wantErr(t, sema.Do(t.Context(), own, 1, func(ctx context.Context) error {
				return sema.Do(ctx, all, 1, func(context.Context) error {
					whole.add(1)
					tenants[tenant].add(1)
					time.Sleep(hold)
					tenants[tenant].add(-1)
					whole.add(-1)
					return nil
				})
			}), nil)
		}
		for range 20 { // one tenant requests far more than its cap
			wg.Go(func() { call(0, time.Second) })
		}
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		call(1, 0)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the other tenant waited %v", took)
		}
		for range 20 {
			wg.Go(func() { call(1, time.Second) })
		}
		wg.Wait()
		if whole.most.Load() != 3 || tenants[0].most.Load() != 2 || tenants[1].most.Load() != 2 {
			t.Errorf("at most %d calls at a time, %d and %d per tenant", whole.most.Load(), tenants[0].most.Load(), tenants[1].most.Load())
		}
	})
}

// TestClient_InfoOfNumberedPermits checks that the numbers of permits are shown, and that
// a change of the capacity keeps them.
func TestClient_InfoOfNumberedPermits(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	config := protocol.Config{Capacity: 4, TTL: 15e6, Numbered: true}
	_, _, err := store.Open(t.Context(), "db", config, protocol.Opener{Client: protocol.Client{Instance: "other"}})
	wantErr(t, err, nil)
	c, _ := newClient(t, store)
	s := semaphore(t, c, of(fleet.Existing))
	first := mustAcquire(t, s, 1)
	second := mustAcquire(t, s, 2)
	wantErr(t, c.Configure(t.Context(), "db", func(config *fleet.Config) { config.Capacity = 8 }), nil)
	info, err := c.Info(t.Context(), "db")
	wantErr(t, err, nil)
	var slots [][]int64
	for _, h := range info.Holders {
		slots = append(slots, h.Slots)
	}
	if !info.Config.Numbered || info.Config.Capacity != 8 || len(slots) != 2 || !slices.Equal(slots[0], []int64{0}) || !slices.Equal(slots[1], []int64{1, 2}) {
		t.Errorf("numbered %v, capacity %d, slots %v; want 0 and 1, 2 of 8", info.Config.Numbered, info.Config.Capacity, slots)
	}
	first.Release()
	second.Release()
}
