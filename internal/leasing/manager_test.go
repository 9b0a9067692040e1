package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

const ttl = 15 * time.Second

// run runs a test in a bubble, with a store and a manager.
func run(t *testing.T, f func(t *testing.T, store fleet.Store, m *leasing.Manager)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		m := leasing.New(store)
		defer m.Close()
		f(t, store, m)
	})
}

func want(capacity int64, wait time.Duration) leasing.Request {
	return leasing.Request{
		Semaphore: "db", Weight: 1, Wait: wait,
		Config: protocol.Config{Capacity: capacity, TTL: protocol.Micros(ttl.Microseconds()), Protocol: protocol.Version},
	}
}

func acquire(t *testing.T, m *leasing.Manager, r leasing.Request) leasing.Lease {
	t.Helper()
	lease, err := m.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func wantInUse(t *testing.T, store fleet.Store, n int64) {
	t.Helper()
	snapshot, err := store.Inspect(t.Context(), "db")
	if err != nil || snapshot.InUse != n {
		t.Fatalf("%d in use, %v; want %d", snapshot.InUse, err, n)
	}
}

func TestManager_RenewsAndReleases(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		if lease.Semaphore != "db" || lease.Weight != 1 || lease.TTL != ttl || lease.Left != ttl*2/3 || lease.Fence.Seq == 0 {
			t.Errorf("%+v", lease)
		}
		_, err := m.Acquire(t.Context(), want(1, 0))
		wantErr(t, err, sema.ErrFull)
		for range 10 {
			time.Sleep(ttl * 2 / 3)
			again, err := m.Renew(t.Context(), "", "db", lease.ID)
			wantErr(t, err, nil)
			if again.ID != lease.ID || again.Left != ttl*2/3 || again.Fence.Seq != lease.Fence.Seq {
				t.Errorf("%+v, was %+v", again, lease)
			}
		}
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		wantInUse(t, store, 0)
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil) // repeated
		_, err = m.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
	})
}

func TestManager_UnrenewedLeaseIsLost(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		start := time.Now()
		acquire(t, m, want(1, time.Hour))
		if took := time.Since(start); took < ttl || took > ttl*13/10 {
			t.Errorf("the permit was granted again after %v", took)
		}
		wantInUse(t, store, 1)
		_, err := m.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), sema.ErrLost)
	})
}

// TestManager_SharesLeasesWithOtherManagers checks that another manager, such as a restarted
// server, renews and releases leases.
func TestManager_SharesLeasesWithOtherManagers(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		second := leasing.New(store)
		defer second.Close()
		lease := acquire(t, first, want(2, 0))
		other := acquire(t, first, want(2, 0))
		for i := range 6 {
			time.Sleep(ttl / 3)
			m := []*leasing.Manager{first, second}[i%2]
			renewed, err := m.Renew(t.Context(), "", "db", lease.ID)
			wantErr(t, err, nil)
			if renewed.ID != lease.ID || renewed.Fence.Seq != lease.Fence.Seq || renewed.Weight != lease.Weight {
				t.Errorf("%+v, was %+v", renewed, lease)
			}
			_, err = second.Renew(t.Context(), "", "db", other.ID)
			wantErr(t, err, nil)
		}
		wantErr(t, second.Release(t.Context(), "", "db", lease.ID), nil)
		wantInUse(t, store, 1)
		_, err := first.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
		wantErr(t, first.Release(t.Context(), "", "db", other.ID), nil)
		wantInUse(t, store, 0)
	})
}

func TestManager_ServesWaitersInOrder(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				lease := acquire(t, m, want(1, time.Hour))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
			})
			synctest.Wait()
		}
		start := time.Now()
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		wg.Wait()
		for i, served := range order {
			if served != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, so no notification arrived", took)
		}
		wantInUse(t, store, 0)
	})
}

func TestManager_WaitsEndInTime(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		start := time.Now()
		keep := time.AfterFunc(ttl/2, func() { m.Renew(context.Background(), "", "db", lease.ID) })
		defer keep.Stop()
		_, err := m.Acquire(t.Context(), want(1, 3*time.Second))
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the request waited for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Acquire(ctx, want(1, time.Minute))
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		wantInUse(t, store, 0) // requests that have ended were granted nothing
		acquire(t, m, want(1, 0))
	})
}

func TestManager_RejectsInvalidRequests(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		large := want(2, time.Second)
		large.Weight = 3
		_, err := m.Acquire(t.Context(), large)
		wantErr(t, err, sema.ErrTooLarge)
		existing := want(0, time.Second)
		existing.Config = protocol.Config{}
		acquire(t, m, existing) // the stored configuration applies
		for _, bad := range []leasing.Request{
			{Semaphore: "a b", Weight: 1}, {Semaphore: "db"}, {Semaphore: "db", Weight: -1}, {Semaphore: "db", Weight: 1, Wait: -1},
			{Semaphore: "db", Weight: 1, Holder: "two\nlines"}, {Semaphore: "db", Weight: 1, Holder: strings.Repeat("x", 2000)},
			{Semaphore: "db", Weight: 1 << 60}, {Semaphore: "other", Weight: 1, Config: protocol.Config{Capacity: -1}},
		} {
			_, err := m.Acquire(t.Context(), bad)
			wantErr(t, err, sema.ErrInvalid)
		}
		for _, id := range []string{"", "1", "1.", ".1", "a.b", "1.2.3", "-1.2"} {
			_, err := m.Renew(t.Context(), "", "db", id)
			wantErr(t, err, sema.ErrInvalid)
			wantErr(t, m.Release(t.Context(), "", "db", id), sema.ErrInvalid)
		}
		_, err = m.Acquire(t.Context(), leasing.Request{Semaphore: "nowhere", Weight: 1})
		wantErr(t, err, fs.ErrNotExist)
		_, err = m.Renew(t.Context(), "", "nowhere", "1.2."+strings.Repeat("0", 32))
		wantErr(t, err, sema.ErrLost)
	})
}

func TestManager_RenewalOfARevokedLeaseReleasesIt(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Revoke: &fleet.Revocation{Lease: lease.Fence.Seq, By: "ops", Why: "night"}}), nil)
		wantInUse(t, store, 1)
		_, err := m.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
		if !strings.Contains(err.Error(), "ops: night") {
			t.Errorf("%v does not contain the operator and the reason", err)
		}
		synctest.Wait()
		wantInUse(t, store, 0)
		acquire(t, m, want(1, 0))
	})
}

func TestManager_RatePermitsReturnByTime(t *testing.T) {
	run(t, func(t *testing.T, _ fleet.Store, m *leasing.Manager) {
		r := want(1, 0)
		r.Config.Kind, r.Config.Window = protocol.Rate, protocol.Micros(time.Second.Microseconds())
		if lease := acquire(t, m, r); lease.ID != "" {
			t.Errorf("lease %+v of a rate has an ID", lease)
		}
		_, err := m.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrFull)
		time.Sleep(time.Second)
		acquire(t, m, r)
	})
}

func TestManager_HoldLastsAsLongAsItsContext(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		ctx, cancel := context.WithCancel(t.Context())
		var notified atomic.Int64
		ended := make(chan error)
		go func() { ended <- m.Hold(ctx, want(1, 0), func(leasing.Lease) { notified.Add(1) }) }()
		time.Sleep(10 * ttl)
		if n := notified.Load(); n < 25 || n > 40 {
			t.Fatalf("notified %d times in 10 TTLs, want about 3 times per TTL", n)
		}
		wantInUse(t, store, 1)
		cancel()
		wantErr(t, <-ended, nil)
		wantInUse(t, store, 0)

		go func() { ended <- m.Hold(t.Context(), want(1, 0), func(leasing.Lease) {}) }()
		synctest.Wait()
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		wantErr(t, <-ended, sema.ErrLost)
	})
}

func TestManager_SameKeyGetsTheSameLease(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		r := want(5, 0)
		r.Key, r.Holder = "retry-7", "cron"
		first := acquire(t, m, r)
		again := acquire(t, m, r)
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		there := acquire(t, elsewhere, r)
		if again.ID != first.ID || there.ID != first.ID || there.Fence.Seq != first.Fence.Seq {
			t.Errorf("%+v, %+v, %+v", first, again, there)
		}
		wantInUse(t, store, 1)
		r.Key = "another"
		if other := acquire(t, m, r); other.ID == first.ID {
			t.Error("another key has the same lease")
		}
		wantErr(t, m.Release(t.Context(), "", "db", first.ID), nil)
		r.Key = "retry-7"
		if later := acquire(t, m, r); later.ID == first.ID {
			t.Error("a released lease is returned again")
		}
	})
}

// TestManager_KeyKeepsItsPlaceInTheQueue checks that a request which was cut off while it waited
// keeps its place in the queue when it is repeated, at any manager.
func TestManager_KeyKeepsItsPlaceInTheQueue(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		holder := acquire(t, m, want(1, 0))
		keyed := want(1, time.Minute)
		keyed.Key = "k"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Acquire(ctx, keyed)
		wantErr(t, err, context.DeadlineExceeded)
		var second atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			lease := acquire(t, m, want(1, time.Minute))
			second.Store(true)
			wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		})
		synctest.Wait()
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		wg.Go(func() {
			lease := acquire(t, elsewhere, keyed)
			if second.Load() {
				t.Error("a later request was served first")
			}
			wantErr(t, elsewhere.Release(t.Context(), "", "db", lease.ID), nil)
		})
		synctest.Wait()
		wantErr(t, m.Release(t.Context(), "", "db", holder.ID), nil)
		wg.Wait()
		wantInUse(t, store, 0)
	})
}

// TestManager_KeepsNoSessionsOrEntries checks that idle sessions and released leases are removed.
func TestManager_KeepsNoSessionsOrEntries(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		for range 100 {
			lease := acquire(t, m, want(1, 0))
			wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		}
		sessions := func() int {
			snapshot, err := store.Inspect(t.Context(), "db")
			wantErr(t, err, nil)
			return len(snapshot.Sessions)
		}
		if n := sessions(); n != 1 {
			t.Errorf("%d sessions for sequential requests, want 1", n)
		}
		time.Sleep(4 * time.Second)
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions are left after 4s without a request", n)
		}
		time.Sleep(2 * time.Minute)
		if n := m.Entries(); n != 0 {
			t.Errorf("the manager keeps %d entries", n)
		}
	})
}

// TestManager_ConcurrentRequestsKeepTheBound checks concurrent requests at two managers, with
// cancelled acquires and renewals of released leases: no more permits are held than the capacity,
// and no lease is lost.
func TestManager_ConcurrentRequestsKeepTheBound(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	managers := []*leasing.Manager{leasing.New(store), leasing.New(store)}
	var holding, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			m, other := managers[i%2], managers[(i+1)%2]
			for n := range 40 {
				lease, err := m.Acquire(t.Context(), want(3, time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), holding.Add(1)))
				var also sync.WaitGroup
				also.Go(func() { _, _ = other.Renew(t.Context(), "", "db", lease.ID) })
				if n%3 == 0 {
					also.Go(func() { _, _ = m.Renew(t.Context(), "", "db", lease.ID) })
				}
				if n%5 == 0 {
					ctx, cancel := context.WithCancel(t.Context())
					also.Go(func() {
						if lease, err := m.Acquire(ctx, want(3, time.Minute)); err == nil {
							_ = m.Release(t.Context(), "", "db", lease.ID)
						}
					})
					cancel()
				}
				holding.Add(-1)
				if err := m.Release(t.Context(), "", "db", lease.ID); err != nil {
					t.Error(err)
				}
				also.Wait()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d held at the same time, capacity 3", most.Load())
	}
	for _, m := range managers {
		m.Close()
	}
}

// TestManager_DoesNotReuseASessionOfAnotherManager checks that a session which another manager has
// opened is not kept idle: the other manager would receive its notifications.
func TestManager_DoesNotReuseASessionOfAnotherManager(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		second := leasing.New(store)
		defer second.Close()
		for range 5 {
			lease := acquire(t, first, want(1, 0))
			wantErr(t, second.Release(t.Context(), "", "db", lease.ID), nil)
		}
		holder := acquire(t, first, want(1, 0))
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { acquire(t, second, want(1, time.Minute)) })
		synctest.Wait()
		wantErr(t, first.Release(t.Context(), "", "db", holder.ID), nil)
		wg.Wait()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the waiter was notified after %v", took)
		}
	})
}

// A denyingStore denies every call, as a service does whose token lacks a right.
type denyingStore struct{ fleet.Store }

func (denyingStore) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, fmt.Errorf("%w: %w", fs.ErrPermission, fleet.FaultAccess)
}

// TestManager_DenialIsNotRepeated checks that the error is the denial, at once.
func TestManager_DenialIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := leasing.New(denyingStore{memstore.New()})
		defer m.Close()
		start := time.Now()
		_, err := m.Acquire(t.Context(), want(1, 0))
		wantErr(t, err, fs.ErrPermission)
		if errors.Is(err, sema.ErrUnavailable) || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
