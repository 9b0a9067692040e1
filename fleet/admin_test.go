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

func TestDrainRefusesEverywhereAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := join(t, store)
		b, _ := join(t, store)
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

func TestConfigureBeginsAgainWhenSomebodyWasQuicker(t *testing.T) {
	t.Parallel()
	c, _ := join(t, memstore.New())
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

func TestRevokeFreesAndTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		snapshot, err := c.Info(context.Background(), "db")
		wantErr(t, err, nil)
		for _, why := range []string{strings.Repeat("x", 1000), "two\nlines"} {
			wantErr(t, c.Revoke(context.Background(), "db", fleet.Revocation{Lease: snapshot.Holders[0].Lease, Why: why}), sema.ErrInvalid)
		}
		wantErr(t, p.Err(), nil)
		wantErr(t, c.Revoke(context.Background(), "db", fleet.Revocation{Lease: snapshot.Holders[0].Lease, AtOnce: false}), nil)
		mustAcquire(t, s, 1).Release()
		wantErr(t, p.Err(), sema.ErrLost)
	})
}

func TestDeletedIsGoneAndMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		names, err := c.List(context.Background(), "d")
		if err != nil || !slices.Equal(names, []string{"db"}) {
			t.Errorf("%q %v", names, err)
		}
		wantErr(t, c.Delete(context.Background(), "db"), nil)
		<-p.Lost() // with the next sign of life
		mustAcquire(t, s, 1).Release()
	})
}

func TestAGuardRefusesThoseWhoAreGoneAndNobodyElse(t *testing.T) {
	t.Parallel()
	var g fleet.Guard
	fence := func(seq, floor protocol.Seq, revoked ...protocol.Range) protocol.Fence {
		return protocol.Fence{Seq: seq, Floor: floor, Revoked: revoked}
	}
	for i, step := range []struct {
		fence   protocol.Fence
		refused bool
	}{
		{fence(5, 5), false},
		{fence(7, 5, protocol.Range{From: 6, To: 6}), false},
		{fence(6, 5), true},
		{fence(5, 5), false}, // still holds
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
		if err := g.Admit(step.fence); errors.Is(err, sema.ErrLost) != step.refused {
			t.Errorf("step %d, %+v: %v", i, step.fence, err)
		}
	}
}

func TestATenantAtItsCapHoldsNothingOfTheWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
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
		for range 20 { // one tenant wants far more than its cap
			wg.Go(func() { call(0, time.Second) })
		}
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		call(1, 0)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("another tenant waited %v", took)
		}
		for range 20 {
			wg.Go(func() { call(1, time.Second) })
		}
		wg.Wait()
		if whole.most.Load() != 3 || tenants[0].most.Load() != 2 || tenants[1].most.Load() != 2 {
			t.Errorf("%d at a time, %d and %d of the tenants", whole.most.Load(), tenants[0].most.Load(), tenants[1].most.Load())
		}
	})
}
