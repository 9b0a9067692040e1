package leasing_test

import (
	"context"
	"fmt"
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

// A countingStore counts inspections and batches, and delays the replies to inspections.
type countingStore struct {
	fleet.Store
	inspections, batches atomic.Int64
}

func (c *countingStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.inspections.Add(1)
	snapshot, err := c.Store.Inspect(ctx, name)
	time.Sleep(50 * time.Millisecond) // the reply is in flight
	return snapshot, err
}

func (c *countingStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	c.batches.Add(1)
	return c.Store.Apply(ctx, name, b)
}

// runCounting runs a test in a bubble, with a counting store and a manager.
func runCounting(t *testing.T, f func(t *testing.T, store *countingStore, m *leasing.Manager)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New()}
		m := leasing.New(store)
		defer m.Close()
		f(t, store, m)
	})
}

// TestManager_TakesOverManyLeases checks that the leases of a closed manager, renewed at another
// one at the same time, share inspections.
func TestManager_TakesOverManyLeases(t *testing.T) {
	runCounting(t, func(t *testing.T, store *countingStore, m *leasing.Manager) {
		const many = 500
		before := leasing.New(store)
		var leases []leasing.Lease
		for range many {
			leases = append(leases, acquire(t, before, want(many, 0)))
		}
		before.Close()
		store.inspections.Store(0)
		for range 2 {
			var wg sync.WaitGroup
			for _, lease := range leases {
				wg.Go(func() {
					if _, err := m.Renew(t.Context(), "", "db", lease.ID); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if n := store.inspections.Load(); n > 10 {
			t.Errorf("%d inspections for %d leases", n, many)
		}
		time.Sleep(5 * time.Minute)
		if n := m.Entries(); n != 0 {
			t.Errorf("the manager keeps %d entries", n)
		}
	})
}

// TestManager_InspectionIsNotOlderThanTheCall checks that a call does not get the result of an
// inspection that began before the call.
func TestManager_InspectionIsNotOlderThanTheCall(t *testing.T) {
	runCounting(t, func(t *testing.T, _ *countingStore, m *leasing.Manager) {
		acquire(t, m, want(2, 0))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = m.Inspect(t.Context(), "db") })
		synctest.Wait() // the first inspection has read one lease
		acquire(t, m, want(2, 0))
		if seen, err := m.Inspect(t.Context(), "db"); err != nil || seen.InUse != 2 {
			t.Errorf("%d in use, %v; want the 2 that were in use at the call", seen.InUse, err)
		}
		wg.Wait()
	})
}

// TestManager_RejectsLeasesOfPrograms checks that a manager sends no batch for the session of a
// program, which would lose its permits by that.
func TestManager_RejectsLeasesOfPrograms(t *testing.T) {
	runCounting(t, func(t *testing.T, store *countingStore, m *leasing.Manager) {
		client := fleet.New(store)
		defer client.Close(context.Background(), fleet.CloseRelease)
		s, err := client.Semaphore("db", 3, fleet.TTL(ttl))
		wantErr(t, err, nil)
		var permits []sema.Permit
		for range 2 {
			p, err := s.Acquire(t.Context(), 1)
			wantErr(t, err, nil)
			permits = append(permits, p)
		}
		snapshot, err := store.Inspect(t.Context(), "db")
		wantErr(t, err, nil)
		id := fmt.Sprintf("%d.%d.%s", snapshot.Leases[0].Seq, snapshot.Leases[0].Session, strings.Repeat("0", 32))
		_, err = m.Renew(t.Context(), "", "db", id)
		wantErr(t, err, sema.ErrLost)
		wantErr(t, m.Release(t.Context(), "", "db", id), sema.ErrLost)
		time.Sleep(2 * ttl)
		for _, p := range permits {
			wantErr(t, p.Err(), nil)
			p.Release()
		}
	})
}

// TestManager_DropsAllIdleSessionsAfterOneIsUnknown checks that idle sessions, which the store
// has lost, are not tried one after the other.
func TestManager_DropsAllIdleSessionsAfterOneIsUnknown(t *testing.T) {
	runCounting(t, func(t *testing.T, store *countingStore, m *leasing.Manager) {
		var leases []leasing.Lease
		for range 200 {
			leases = append(leases, acquire(t, m, want(200, 0)))
		}
		for _, lease := range leases {
			wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		}
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		store.batches.Store(0)
		acquire(t, m, want(200, 0))
		if n := store.batches.Load(); n > 3 {
			t.Errorf("%d batches for one acquire", n)
		}
	})
}

// TestManager_SecondRequestWithAKeyKeepsItsOwnTimeout checks that a request does not wait longer
// because another one with the same key was cancelled first.
func TestManager_SecondRequestWithAKeyKeepsItsOwnTimeout(t *testing.T) {
	run(t, func(t *testing.T, _ fleet.Store, m *leasing.Manager) {
		holder := want(1, 0)
		holder.Config.TTL *= 100
		acquire(t, m, holder)
		r := want(1, 20*time.Second)
		r.Key = "k"
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = m.Acquire(ctx, r) })
		synctest.Wait()
		start := time.Now()
		wg.Go(func() {
			time.Sleep(18 * time.Second)
			cancel()
		})
		_, err := m.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took > 21*time.Second {
			t.Errorf("the request waited for %v", took)
		}
		wg.Wait()
	})
}

func TestManager_HoldRejectsARate(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		r := want(1, 0)
		r.Config.Kind, r.Config.Window = protocol.Rate, 60_000_000
		wantErr(t, m.Hold(t.Context(), r, func(leasing.Lease) { t.Error("Hold got a lease of a rate") }), sema.ErrInvalid)
		wantInUse(t, store, 0)
	})
}
