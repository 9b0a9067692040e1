package leasing_test

import (
	"context"
	"errors"
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

// TestManager_RejectedRequestsLeaveTheQueue checks that a request leaves the queue before another
// one uses its session.
func TestManager_RejectedRequestsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	m := leasing.New(memstore.New())
	defer m.Close()
	lease := acquire(t, m, want(1, 0))
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 500 {
				if _, err := m.Acquire(t.Context(), want(1, 0)); !errors.Is(err, sema.ErrFull) {
					t.Errorf("error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := m.Queues(); n != 0 {
		t.Errorf("%d queues have entries although no request waits", n)
	}
	wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
}

// TestManager_ReplacesAnExpiredIdleSession checks that a request does not fail if the idle session
// has expired, or was deleted with the semaphore.
func TestManager_ReplacesAnExpiredIdleSession(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		r := want(1, 0)
		r.Config.TTL = protocol.Micros(200_000)
		lease := acquire(t, m, r)
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		time.Sleep(time.Second)
		lease = acquire(t, m, r)
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		acquire(t, m, r)
	})
}

// TestManager_WaitSurvivesTheDeletionOfTheSemaphore checks that a request which waits while the
// semaphore is deleted creates it again.
func TestManager_WaitSurvivesTheDeletionOfTheSemaphore(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		acquire(t, m, want(1, 0))
		got := make(chan error)
		go func() {
			_, err := m.Acquire(t.Context(), want(1, time.Minute))
			got <- err
		}()
		synctest.Wait()
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		wantErr(t, <-got, nil)
		wantInUse(t, store, 1)
	})
}

// A gatedStore makes the first inspections of all its users wait for each other.
type gatedStore struct {
	fleet.Store
	gate *sync.WaitGroup
	once sync.Once
}

func (g *gatedStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	s, err := g.Store.Inspect(ctx, name)
	g.once.Do(func() { g.gate.Done(); g.gate.Wait() })
	return s, err
}

// TestManager_SameKeyAtTwoManagersGetsOneLease checks concurrent requests with the same key.
func TestManager_SameKeyAtTwoManagersGetsOneLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		setup := leasing.New(store)
		l := acquire(t, setup, want(5, 0))
		wantErr(t, setup.Release(t.Context(), "", "db", l.ID), nil)
		setup.Close()
		var gate sync.WaitGroup
		gate.Add(2)
		ids := make([]string, 2)
		var wg sync.WaitGroup
		for i := range 2 {
			m := leasing.New(&gatedStore{Store: store, gate: &gate})
			defer m.Close()
			wg.Go(func() {
				r := want(5, time.Second)
				r.Key = "k"
				ids[i] = acquire(t, m, r).ID
			})
		}
		wg.Wait()
		synctest.Wait()
		if ids[0] != ids[1] {
			t.Errorf("leases %v", ids)
		}
		wantInUse(t, store, 1)
	})
}

// TestManager_TimeoutDoesNotCancelTheTicketOfAnotherManager checks two requests with the same key
// at two managers: the first one times out, and the second one keeps its ticket.
func TestManager_TimeoutDoesNotCancelTheTicketOfAnotherManager(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		second := leasing.New(store)
		defer second.Close()
		holder := acquire(t, first, want(1, 0))
		keyed := want(1, 3*time.Second)
		keyed.Key = "k"
		var wg sync.WaitGroup
		wg.Go(func() { _, err := first.Acquire(t.Context(), keyed); wantErr(t, err, sema.ErrTimeout) })
		time.Sleep(time.Second)
		again := keyed
		again.Wait = time.Minute
		var served atomic.Bool
		wg.Go(func() {
			if _, err := second.Acquire(t.Context(), again); err != nil {
				t.Error(err)
			}
			served.Store(true)
		})
		time.Sleep(3 * time.Second)
		wantErr(t, first.Release(t.Context(), "", "db", holder.ID), nil)
		time.Sleep(2 * time.Second)
		if !served.Load() {
			t.Error("a permit is free, and the waiter is not served")
		}
		wg.Wait()
	})
}

// A mutedStore sends no notifications.
type mutedStore struct{ fleet.Store }

func (mutedStore) Listen(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestManager_TimeoutDoesNotReleaseTheLeaseOfAnotherManager checks that a lease stays valid if
// the same request times out at another manager, which was not notified of the grant.
func TestManager_TimeoutDoesNotReleaseTheLeaseOfAnotherManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first, second := leasing.New(mutedStore{store}), leasing.New(store)
		defer first.Close()
		defer second.Close()
		holder := acquire(t, second, want(1, 0))
		keyed := want(1, 2400*time.Millisecond)
		keyed.Key = "k"
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = first.Acquire(t.Context(), keyed) })
		time.Sleep(time.Second)
		again := keyed
		again.Wait = time.Minute
		var lease leasing.Lease
		wg.Go(func() { lease = acquire(t, second, again) })
		time.Sleep(200 * time.Millisecond)
		wantErr(t, second.Release(t.Context(), "", "db", holder.ID), nil)
		wg.Wait()
		time.Sleep(2 * time.Second)
		wantInUse(t, store, 1)
		_, err := second.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, nil)
	})
}

// A shuffler delays acquires so that the store receives them in reverse order.
type shuffler struct {
	fleet.Store
	late time.Duration
	mu   sync.Mutex
}

func (s *shuffler) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if len(b.Ops) > 0 && b.Ops[0].Verb == protocol.Acquire && !b.Ops[0].Try {
		s.mu.Lock()
		s.late -= time.Millisecond
		late := s.late
		s.mu.Unlock()
		time.Sleep(late)
	}
	return s.Store.Apply(ctx, name, b)
}

func configure(t *testing.T, store fleet.Store, change func(*fleet.Config)) {
	t.Helper()
	client := fleet.New(store)
	wantErr(t, client.Configure(t.Context(), "db", change), nil)
	wantErr(t, client.Close(t.Context()), nil)
}

// TestManager_ConcurrentWaitersAreServedWithoutDelay checks that the waiter which the store serves
// is woken, although others came to the manager before.
func TestManager_ConcurrentWaitersAreServedWithoutDelay(t *testing.T) {
	const many = 300
	for name, free := range map[string]func(*testing.T, fleet.Store, *leasing.Manager, leasing.Lease){
		"permits are released one by one": func(t *testing.T, _ fleet.Store, m *leasing.Manager, holder leasing.Lease) {
			wantErr(t, m.Release(t.Context(), "", "db", holder.ID), nil)
		},
		"the capacity is raised": func(t *testing.T, store fleet.Store, _ *leasing.Manager, _ leasing.Lease) {
			configure(t, store, func(c *fleet.Config) { c.Capacity = many + 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &shuffler{Store: memstore.New(), late: time.Second}
				m := leasing.New(store)
				defer m.Close()
				holder := acquire(t, m, want(1, 0))
				var wg sync.WaitGroup
				for range many {
					wg.Go(func() {
						lease := acquire(t, m, want(1, time.Hour))
						wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
					})
				}
				time.Sleep(2 * time.Second)
				start := time.Now()
				free(t, store, m, holder)
				wg.Wait()
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestManager_DrainRejectsAllWaitersWithoutDelay checks that one notification reaches all waiters.
func TestManager_DrainRejectsAllWaitersWithoutDelay(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		acquire(t, m, want(1, 0))
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				_, err := m.Acquire(t.Context(), want(1, time.Hour))
				wantErr(t, err, sema.ErrDraining)
			})
		}
		synctest.Wait()
		start := time.Now()
		configure(t, store, func(c *fleet.Config) { c.Draining = true })
		wg.Wait()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestManager_RejectsAKeyWithAnotherWeight(t *testing.T) {
	run(t, func(t *testing.T, _ fleet.Store, m *leasing.Manager) {
		r := want(5, 0)
		r.Key = "k"
		acquire(t, m, r)
		r.Weight = 3
		_, err := m.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrInvalid)
	})
}

// TestManager_SameKeyWithAShorterWait checks that the second of two concurrent requests with a key
// does not wait longer than its own wait.
func TestManager_SameKeyWithAShorterWait(t *testing.T) {
	run(t, func(t *testing.T, _ fleet.Store, m *leasing.Manager) {
		acquire(t, m, want(1, 0))
		long, short := want(1, 10*time.Second), want(1, time.Second)
		long.Key, short.Key = "k", "k"
		go m.Acquire(t.Context(), long)
		synctest.Wait()
		start := time.Now()
		_, err := m.Acquire(t.Context(), short)
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestManager_CloseCancelsTickets checks that the waiters of a closed manager do not delay others.
func TestManager_CloseCancelsTickets(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		lease := acquire(t, m, want(1, 0))
		closing := leasing.New(store)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := closing.Acquire(t.Context(), want(1, time.Minute))
				wantErr(t, err, sema.ErrClosed)
			})
		}
		synctest.Wait()
		closing.Close()
		wg.Wait()
		wantErr(t, m.Release(t.Context(), "", "db", lease.ID), nil)
		start := time.Now()
		acquire(t, m, want(1, time.Minute))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestManager_CloseReleasesHeldLeases checks that Close ends Hold and releases the permit
// immediately.
func TestManager_CloseReleasesHeldLeases(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			m := leasing.New(store)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- m.Hold(ctx, want(1, 0), func(leasing.Lease) {}) }()
			synctest.Wait()
			cancel()
			m.Close()
			<-ended
			wantInUse(t, store, 0)
		})
	}
}

// A heldStore delays its first batch until the gate is closed.
type heldStore struct {
	fleet.Store
	once sync.Once
	gate chan struct{}
}

func (h *heldStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	h.once.Do(func() { <-h.gate })
	return h.Store.Apply(ctx, name, b)
}

// TestManager_RenewalAfterARelease checks that a renewal fails if another manager has released the
// lease meanwhile and uses the session for another lease.
func TestManager_RenewalAfterARelease(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		gate := make(chan struct{})
		second := leasing.New(&heldStore{Store: store, gate: gate})
		defer second.Close()
		lease := acquire(t, first, want(1, 0))
		time.Sleep(time.Second)
		renewed := make(chan error)
		go func() { _, err := second.Renew(t.Context(), "", "db", lease.ID); renewed <- err }()
		synctest.Wait()
		wantErr(t, first.Release(t.Context(), "", "db", lease.ID), nil)
		acquire(t, first, want(1, 0)) // in the same session
		close(gate)
		wantErr(t, <-renewed, sema.ErrLost)
	})
}
