package fleet_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
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

func TestClient_DrainEndsAfterExpiryAndWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		crashed, conn := newClient(t, store)
		admin, _ := newClient(t, store)
		mustAcquire(t, semaphore(t, crashed, of(1)), 1)
		rate, err := crashed.Semaphore("calls", 1, fleet.Rate(time.Hour))
		wantErr(t, err, nil)
		mustAcquire(t, rate, 1)
		conn.cut.Store(true)
		start := time.Now()
		wantErr(t, admin.Drain(t.Context(), "db"), nil)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("the holder expired after %v", took)
		}
		wantErr(t, admin.Drain(t.Context(), "calls"), nil)
		if took := time.Since(start); took > time.Hour+time.Second {
			t.Errorf("the window ended after %v", took)
		}
	})
}

func TestClient_InfoListsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1, fleet.Labels(map[string]string{"team": "payments", "job": "a b"})))
		start := time.Now()
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.Sleep(time.Second)
		go func() { s.Acquire(ctx, 1) }()
		synctest.Wait()
		snapshot, err := c.Info(t.Context(), "db")
		wantErr(t, err, nil)
		holder, waiter := snapshot.Holders[0], snapshot.Waiters[0]
		if labels := map[string]string{"job": "a b", "team": "payments"}; !strings.HasPrefix(holder.Site, "fleet/helpers_test.go:") || !maps.Equal(holder.Labels, labels) || !holder.Since.Equal(start) {
			t.Errorf("holder %+v", holder)
		}
		if !strings.HasPrefix(waiter.Site, "fleet/admin_test.go:") || !waiter.Since.Equal(start.Add(time.Second)) {
			t.Errorf("waiter %+v", waiter)
		}
		for _, got := range []fleet.Caller{holder.Caller, waiter.Caller} {
			if got.Client != c.Instance() || got.Process != int64(os.Getpid()) || got.Host == "" || got.Kind != "program" || got.Renewed.IsZero() {
				t.Errorf("client %+v", got)
			}
		}
		cancel()
		p.Release()
	})
}

func TestClient_ConfigureGivesUpAfterTenConflicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1).Release()
		wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.Version = 77 }), nil) // the caller's version is ignored
		o.administered.Store(0)
		o.administerErr = fmt.Errorf("%w: again", protocol.ErrConflict)
		err := c.Configure(t.Context(), "db", func(c *fleet.Config) {})
		wantErr(t, err, protocol.ErrConflict)
		if n := o.administered.Load(); n != 10 || !strings.Contains(err.Error(), "after 10 tries") {
			t.Errorf("%v after %d tries, want 10", err, n)
		}
	})
}
