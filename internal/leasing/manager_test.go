package leasing_test

import (
	"context"
	"errors"
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

// in runs a test in a bubble, with an engine and a leasing.
func in(t *testing.T, f func(t *testing.T, store fleet.Store, d *leasing.Manager)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := leasing.New(store)
		defer d.Close()
		f(t, store, d)
	})
}

func want(capacity int64, wait time.Duration) leasing.Request {
	return leasing.Request{
		Semaphore: "db", Weight: 1, Wait: wait,
		Config: protocol.Config{Capacity: capacity, TTL: protocol.Micros(ttl.Microseconds()), Protocol: protocol.Version},
	}
}

func acquire(t *testing.T, d *leasing.Manager, r leasing.Request) leasing.Lease {
	t.Helper()
	lease, err := d.Acquire(t.Context(), r)
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

func TestALeaseIsRenewedAndReleased(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
		if lease.Semaphore != "db" || lease.Weight != 1 || lease.TTL != ttl || lease.Left != ttl*2/3 || lease.Fence.Seq == 0 {
			t.Errorf("%+v", lease)
		}
		_, err := d.Acquire(t.Context(), want(1, 0))
		wantErr(t, err, sema.ErrFull)
		for range 10 {
			time.Sleep(ttl * 2 / 3)
			again, err := d.Renew(t.Context(), "", "db", lease.ID)
			wantErr(t, err, nil)
			if again.ID != lease.ID || again.Left != ttl*2/3 || again.Fence.Seq != lease.Fence.Seq {
				t.Errorf("%+v, was %+v", again, lease)
			}
		}
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		wantInUse(t, store, 0)
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil) // said twice
		_, err = d.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
	})
}

func TestALeaseThatIsNotRenewedIsLost(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
		start := time.Now()
		acquire(t, d, want(1, time.Hour))
		if took := time.Since(start); took < ttl || took > ttl*13/10 {
			t.Errorf("somebody else had it after %v", took)
		}
		wantInUse(t, store, 1)
		_, err := d.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), sema.ErrLost)
	})
}

// Another desk, or the same one after it was started again, goes on.
func TestDesksAreAsGoodAsOne(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
		second := leasing.New(store)
		defer second.Close()
		lease := acquire(t, first, want(2, 0))
		other := acquire(t, first, want(2, 0))
		for i := range 6 {
			time.Sleep(ttl / 3)
			d := []*leasing.Manager{first, second}[i%2]
			renewed, err := d.Renew(t.Context(), "", "db", lease.ID)
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

func TestThoseWhoWaitAreServedInTurn(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				lease := acquire(t, d, want(1, time.Hour))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
			})
			synctest.Wait()
		}
		start := time.Now()
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		wg.Wait()
		for i, who := range order {
			if who != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, nobody was told", took)
		}
		wantInUse(t, store, 0)
	})
}

func TestWaitsEnd(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
		start := time.Now()
		keep := time.AfterFunc(ttl/2, func() { d.Renew(context.Background(), "", "db", lease.ID) })
		defer keep.Stop()
		_, err := d.Acquire(t.Context(), want(1, 3*time.Second))
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it waited for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = d.Acquire(ctx, want(1, time.Minute))
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		wantInUse(t, store, 0) // nobody who has gone was given anything
		acquire(t, d, want(1, 0))
	})
}

func TestRefusals(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		large := want(2, time.Second)
		large.Weight = 3
		_, err := d.Acquire(t.Context(), large)
		wantErr(t, err, sema.ErrTooLarge)
		there := want(0, time.Second)
		there.Config = protocol.Config{}
		acquire(t, d, there) // by whatever configuration it has
		for _, bad := range []leasing.Request{
			{Semaphore: "a b", Weight: 1}, {Semaphore: "db"}, {Semaphore: "db", Weight: -1}, {Semaphore: "db", Weight: 1, Wait: -1},
			{Semaphore: "db", Weight: 1, Holder: "two\nlines"}, {Semaphore: "db", Weight: 1, Holder: strings.Repeat("x", 2000)},
			{Semaphore: "db", Weight: 1 << 60}, {Semaphore: "other", Weight: 1, Config: protocol.Config{Capacity: -1}},
		} {
			_, err := d.Acquire(t.Context(), bad)
			wantErr(t, err, sema.ErrInvalid)
		}
		for _, id := range []string{"", "1", "1.", ".1", "a.b", "1.2.3", "-1.2"} {
			_, err := d.Renew(t.Context(), "", "db", id)
			wantErr(t, err, sema.ErrInvalid)
			wantErr(t, d.Release(t.Context(), "", "db", id), sema.ErrInvalid)
		}
		_, err = d.Acquire(t.Context(), leasing.Request{Semaphore: "nowhere", Weight: 1})
		wantErr(t, err, fs.ErrNotExist)
		_, err = d.Renew(t.Context(), "", "nowhere", "1.2."+strings.Repeat("0", 32))
		wantErr(t, err, sema.ErrLost)
	})
}

func TestARevokedLeaseIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		lease := acquire(t, d, want(1, 0))
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Revoke: &fleet.Revocation{Lease: lease.Fence.Seq, By: "ops", Why: "night"}}), nil)
		wantInUse(t, store, 1)
		_, err := d.Renew(t.Context(), "", "db", lease.ID)
		wantErr(t, err, sema.ErrLost)
		if !strings.Contains(err.Error(), "ops: night") {
			t.Errorf("%v does not say by whom and why", err)
		}
		synctest.Wait()
		wantInUse(t, store, 0)
		acquire(t, d, want(1, 0))
	})
}

func TestARateIsSpent(t *testing.T) {
	in(t, func(t *testing.T, _ fleet.Store, d *leasing.Manager) {
		r := want(1, 0)
		r.Config.Kind, r.Config.Window = protocol.Rate, protocol.Micros(time.Second.Microseconds())
		if lease := acquire(t, d, r); lease.ID != "" {
			t.Errorf("%+v can be released", lease)
		}
		_, err := d.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrFull)
		time.Sleep(time.Second)
		acquire(t, d, r)
	})
}

func TestAHoldLastsAsLongAsItsContext(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int64
		ended := make(chan error)
		go func() { ended <- d.Hold(ctx, want(1, 0), func(leasing.Lease) { told.Add(1) }) }()
		time.Sleep(10 * ttl)
		if n := told.Load(); n < 25 || n > 40 {
			t.Fatalf("told %d times in 10 TTLs, want about three in each", n)
		}
		wantInUse(t, store, 1)
		cancel()
		wantErr(t, <-ended, nil)
		wantInUse(t, store, 0)

		go func() { ended <- d.Hold(t.Context(), want(1, 0), func(leasing.Lease) {}) }()
		synctest.Wait()
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		wantErr(t, <-ended, sema.ErrLost)
	})
}

func TestTheSameKeyHasTheSameLease(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		r := want(5, 0)
		r.Key, r.Holder = "retry-7", "cron"
		first := acquire(t, d, r)
		again := acquire(t, d, r)
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		there := acquire(t, elsewhere, r)
		if again.ID != first.ID || there.ID != first.ID || there.Fence.Seq != first.Fence.Seq {
			t.Errorf("%+v, %+v, %+v", first, again, there)
		}
		wantInUse(t, store, 1)
		r.Key = "another"
		if other := acquire(t, d, r); other.ID == first.ID {
			t.Error("another key has the same lease")
		}
		wantErr(t, d.Release(t.Context(), "", "db", first.ID), nil)
		r.Key = "retry-7"
		if later := acquire(t, d, r); later.ID == first.ID {
			t.Error("a lease that was released is back")
		}
	})
}

// Who is cut off while it waits has its place when it comes again, at any leasing.
func TestAKeyKeepsItsPlace(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		holder := acquire(t, d, want(1, 0))
		keyed := want(1, time.Minute)
		keyed.Key = "k"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Acquire(ctx, keyed)
		wantErr(t, err, context.DeadlineExceeded)
		var second atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			lease := acquire(t, d, want(1, time.Minute))
			second.Store(true)
			wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		})
		synctest.Wait()
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		wg.Go(func() {
			lease := acquire(t, elsewhere, keyed)
			if second.Load() {
				t.Error("who came later was served first")
			}
			wantErr(t, elsewhere.Release(t.Context(), "", "db", lease.ID), nil)
		})
		synctest.Wait()
		wantErr(t, d.Release(t.Context(), "", "db", holder.ID), nil)
		wg.Wait()
		wantInUse(t, store, 0)
	})
}

// Sessions do not pile up, and neither does what is remembered.
func TestNothingIsLeftBehind(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		for range 100 {
			lease := acquire(t, d, want(1, 0))
			wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		}
		sessions := func() int {
			snapshot, err := store.Inspect(t.Context(), "db")
			wantErr(t, err, nil)
			return len(snapshot.Sessions)
		}
		if n := sessions(); n != 1 {
			t.Errorf("%d sessions for one after the other, want 1", n)
		}
		time.Sleep(4 * time.Second)
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions are left when nobody came for long", n)
		}
		time.Sleep(2 * time.Minute)
		if n := d.Remembered(); n != 0 {
			t.Errorf("%d things are remembered", n)
		}
	})
}

// Many who use one desk at the same time, some of them wrongly, get no more than
// there is, and nothing is lost.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	desks := []*leasing.Manager{leasing.New(store), leasing.New(store)}
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			d, other := desks[i%2], desks[(i+1)%2]
			for n := range 40 {
				lease, err := d.Acquire(t.Context(), want(3, time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				var also sync.WaitGroup
				also.Go(func() { _, _ = other.Renew(t.Context(), "", "db", lease.ID) })
				if n%3 == 0 {
					also.Go(func() { _, _ = d.Renew(t.Context(), "", "db", lease.ID) })
				}
				if n%5 == 0 {
					ctx, cancel := context.WithCancel(t.Context())
					also.Go(func() {
						if lease, err := d.Acquire(ctx, want(3, time.Minute)); err == nil {
							_ = d.Release(t.Context(), "", "db", lease.ID)
						}
					})
					cancel()
				}
				inside.Add(-1)
				if err := d.Release(t.Context(), "", "db", lease.ID); err != nil {
					t.Error(err)
				}
				also.Wait()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d inside at a time, of 3", most.Load())
	}
	for _, d := range desks {
		d.Close()
	}
}

// A session that another desk has opened is not kept for the next who comes: that
// desk would be told of its news.
func TestNobodyWaitsInASessionOfAnotherDesk(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, first *leasing.Manager) {
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
			t.Errorf("it was told after %v", took)
		}
	})
}
