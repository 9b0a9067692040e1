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

// Who is refused leaves the line before its session is given to the next.
func TestManyWhoAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := leasing.New(memstore.New())
	defer d.Close()
	lease := acquire(t, d, want(1, 0))
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 500 {
				if _, err := d.Acquire(t.Context(), want(1, 0)); !errors.Is(err, sema.ErrFull) {
					t.Errorf("error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := d.Standing(); n != 0 {
		t.Errorf("somebody is in %d lines, though nobody waits", n)
	}
	wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
}

// A session that has died while it was idle is not given to anybody.
func TestAnIdleSessionMayHaveDied(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		r := want(1, 0)
		r.Config.TTL = protocol.Micros(200_000)
		lease := acquire(t, d, r)
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		time.Sleep(time.Second)
		lease = acquire(t, d, r)
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		acquire(t, d, r)
	})
}

// Who waits while the semaphore is deleted and made again waits for the new one.
func TestAWaitSurvivesTheSemaphoreItWaitsFor(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		acquire(t, d, want(1, 0))
		got := make(chan error)
		go func() {
			_, err := d.Acquire(t.Context(), want(1, time.Minute))
			got <- err
		}()
		synctest.Wait()
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		wantErr(t, <-got, nil)
		wantInUse(t, store, 1)
	})
}

// A gated store has those who look wait for each other.
type gated struct {
	fleet.Store
	gate *sync.WaitGroup
	once sync.Once
}

func (g *gated) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	s, err := g.Store.Inspect(ctx, name)
	g.once.Do(func() { g.gate.Done(); g.gate.Wait() })
	return s, err
}

// A request that is said to two desks at the same time has one lease.
func TestAKeyAtTwoDesksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		acquireSetup := leasing.New(store)
		l := acquire(t, acquireSetup, want(5, 0))
		wantErr(t, acquireSetup.Release(t.Context(), "", "db", l.ID), nil)
		acquireSetup.Close()
		var gate sync.WaitGroup
		gate.Add(2)
		ids := make([]string, 2)
		var wg sync.WaitGroup
		for i := range 2 {
			d := leasing.New(&gated{Store: store, gate: &gate})
			defer d.Close()
			wg.Go(func() {
				r := want(5, time.Second)
				r.Key = "k"
				ids[i] = acquire(t, d, r).ID
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

// The first of two requests with the same key runs out of time at one leasing. The
// second, at another one, is not harmed.
func TestATimeoutHarmsNobodyWithTheSameKeyElsewhere(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
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
			t.Error("a permit is free, and who waits for it has no place in line")
		}
		wg.Wait()
	})
}

// What was granted at one desk is not taken back by another, at which the same
// request runs out of time before it has heard.
type deaf struct{ fleet.Store }

func (deaf) Listen(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestATimeoutTakesNothingBackThatWasGrantedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first, second := leasing.New(deaf{store}), leasing.New(store)
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

// The same key for something else is a mistake.
// A shuffler has the engine hear wishes in the reverse of the order in which they
// were made.
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

// Whoever the engine serves is woken, though it was not the first to come here.
func TestManyWhoComeAtOnceAreServedWithoutDelay(t *testing.T) {
	const many = 300
	for name, free := range map[string]func(*testing.T, fleet.Store, *leasing.Manager, leasing.Lease){
		"one after the other": func(t *testing.T, _ fleet.Store, d *leasing.Manager, holder leasing.Lease) {
			wantErr(t, d.Release(t.Context(), "", "db", holder.ID), nil)
		},
		"all at once": func(t *testing.T, store fleet.Store, _ *leasing.Manager, _ leasing.Lease) {
			configure(t, store, func(c *fleet.Config) { c.Capacity = many + 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &shuffler{Store: memstore.New(), late: time.Second}
				d := leasing.New(store)
				defer d.Close()
				holder := acquire(t, d, want(1, 0))
				var wg sync.WaitGroup
				for range many {
					wg.Go(func() {
						lease := acquire(t, d, want(1, time.Hour))
						wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
					})
				}
				time.Sleep(2 * time.Second)
				start := time.Now()
				free(t, store, d, holder)
				wg.Wait()
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// All who are refused are told at once.
func TestManyAreToldOfADrain(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		acquire(t, d, want(1, 0))
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				_, err := d.Acquire(t.Context(), want(1, time.Hour))
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

func TestAKeyForSomethingElse(t *testing.T) {
	in(t, func(t *testing.T, _ fleet.Store, d *leasing.Manager) {
		r := want(5, 0)
		r.Key = "k"
		acquire(t, d, r)
		r.Weight = 3
		_, err := d.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrInvalid)
	})
}

// Who asks for the same at the same time waits no longer than it would.
func TestTheSameKeyWithAShorterWait(t *testing.T) {
	in(t, func(t *testing.T, _ fleet.Store, d *leasing.Manager) {
		acquire(t, d, want(1, 0))
		long, short := want(1, 10*time.Second), want(1, time.Second)
		long.Key, short.Key = "k", "k"
		go d.Acquire(t.Context(), long)
		synctest.Wait()
		start := time.Now()
		_, err := d.Acquire(t.Context(), short)
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A desk that is closed takes back the tickets of those who wait, so that they are
// in nobody's way.
func TestAClosedDeskLeavesNobodyInLine(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
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
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		start := time.Now()
		acquire(t, d, want(1, time.Minute))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A hold ends with its desk, and its permit is back at once.
func TestAHoldThatEndsWithItsDesk(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			d := leasing.New(store)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- d.Hold(ctx, want(1, 0), func(leasing.Lease) {}) }()
			synctest.Wait()
			cancel()
			d.Close()
			<-ended
			wantInUse(t, store, 0)
		})
	}
}

// A held store has its first batch wait.
type held struct {
	fleet.Store
	once sync.Once
	gate chan struct{}
}

func (h *held) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	h.once.Do(func() { <-h.gate })
	return h.Store.Apply(ctx, name, b)
}

// A lease that is released while another desk is about to renew it is not renewed
// by what the session was used for since.
func TestARenewalThatComesTooLate(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		gate := make(chan struct{})
		second := leasing.New(&held{Store: store, gate: gate})
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
