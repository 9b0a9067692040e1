package leasing_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// An opsStore records the acquires that it receives.
type opsStore struct {
	fleet.Store
	mu       sync.Mutex
	acquires []protocol.Op
}

func (s *opsStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.mu.Lock()
	for _, op := range b.Ops {
		if op.Verb == protocol.Acquire {
			s.acquires = append(s.acquires, op)
		}
	}
	s.mu.Unlock()
	return s.Store.Apply(ctx, name, b)
}

// TestManager_UnboundedWait checks that an unbounded request waits until it is granted or
// its context ends, and that the store receives no bound.
func TestManager_UnboundedWait(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			store := &opsStore{Store: memstore.New()}
			m := leasing.New(store)
			defer m.Close()
			first := acquire(t, m, want(1, 0))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(ttl / 3):
						_, err := m.Renew(t.Context(), "", "db", first.ID)
						wantErr(t, err, nil)
					}
				}
			})
			unbounded := want(1, 0)
			unbounded.Unbounded, unbounded.Key = true, key
			start := time.Now()
			wg.Go(func() {
				time.Sleep(time.Hour + ttl/6) // between two renewals
				close(stop)
				wantErr(t, m.Release(t.Context(), "", "db", first.ID), nil)
			})
			var same leasing.Lease
			if key != "" {
				wg.Go(func() {
					time.Sleep(ttl)
					same = acquire(t, m, unbounded)
				})
			}
			lease := acquire(t, m, unbounded)
			wg.Wait()
			if key != "" && same.ID != lease.ID {
				t.Errorf("the same key has the leases %q and %q", lease.ID, same.ID)
			}
			if time.Since(start) < time.Hour || lease.ID == "" {
				t.Errorf("key %q: %+v after %v", key, lease, time.Since(start))
			}
			if op := store.acquires[len(store.acquires)-1]; op.Wait != 0 || op.Try {
				t.Errorf("key %q: the store received %+v", key, op)
			}
			ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
			defer cancel()
			unbounded.Key = ""
			_, err := m.Acquire(ctx, unbounded)
			wantErr(t, err, context.DeadlineExceeded)
		})
	}
}

// TestManager_UnboundedWithAWait checks that a request cannot have both a wait and no bound.
func TestManager_UnboundedWithAWait(t *testing.T) {
	run(t, func(t *testing.T, _ fleet.Store, m *leasing.Manager) {
		both := want(1, time.Second)
		both.Unbounded = true
		_, err := m.Acquire(t.Context(), both)
		wantErr(t, err, sema.ErrInvalid)
	})
}

// TestManager_Slots checks that a lease on a numbered semaphore has the numbers of its
// permits, also when another manager renews it.
func TestManager_Slots(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		numbered := want(6, 0)
		numbered.Config.Numbered, numbered.Weight = true, 2
		first, second := acquire(t, m, numbered), acquire(t, m, numbered)
		if first.Slots != "0-1" || second.Slots != "2-3" {
			t.Errorf("slots %q and %q", first.Slots, second.Slots)
		}
		wantErr(t, m.Release(t.Context(), "", "db", first.ID), nil)
		numbered.Weight = 3
		if third := acquire(t, m, numbered); third.Slots != "0-1,4" {
			t.Errorf("slots %q", third.Slots)
		}
		other := leasing.New(store)
		defer other.Close()
		for _, m := range []*leasing.Manager{m, other} {
			renewed, err := m.Renew(t.Context(), "", "db", second.ID)
			if err != nil || renewed.Slots != "2-3" {
				t.Errorf("slots %q after a renewal, %v", renewed.Slots, err)
			}
		}
	})
}
