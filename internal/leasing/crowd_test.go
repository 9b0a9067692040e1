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

// counting is an engine that counts, and takes a while for a look.
type counting struct {
	fleet.Store
	looks, batches atomic.Int64
}

func (c *counting) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.looks.Add(1)
	snapshot, err := c.Store.Inspect(ctx, name)
	time.Sleep(50 * time.Millisecond) // on its way
	return snapshot, err
}

func (c *counting) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	c.batches.Add(1)
	return c.Store.Apply(ctx, name, b)
}

// over runs a test in a bubble with such an engine and a leasing.
func over(t *testing.T, f func(t *testing.T, store *counting, d *leasing.Manager)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		d := leasing.New(store)
		defer d.Close()
		f(t, store, d)
	})
}

// When a server is gone, all of its leases are renewed at another one within moments.
func TestManyLeasesOfADeskThatIsGone(t *testing.T) {
	over(t, func(t *testing.T, store *counting, d *leasing.Manager) {
		const many = 500
		before := leasing.New(store)
		var leases []leasing.Lease
		for range many {
			leases = append(leases, acquire(t, before, want(many, 0)))
		}
		before.Close()
		store.looks.Store(0)
		for range 2 {
			var wg sync.WaitGroup
			for _, lease := range leases {
				wg.Go(func() {
					if _, err := d.Renew(t.Context(), "", "db", lease.ID); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if n := store.looks.Load(); n > 10 {
			t.Errorf("%d looks for %d leases", n, many)
		}
		time.Sleep(5 * time.Minute)
		if n := d.Remembered(); n != 0 {
			t.Errorf("%d things are remembered", n)
		}
	})
}

// A look is never older than the question.
func TestALookIsNotOld(t *testing.T) {
	over(t, func(t *testing.T, _ *counting, d *leasing.Manager) {
		acquire(t, d, want(2, 0))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = d.Look(t.Context(), "db") })
		synctest.Wait() // it has seen one
		acquire(t, d, want(2, 0))
		if seen, err := d.Look(t.Context(), "db"); err != nil || seen.InUse != 2 {
			t.Errorf("%d in use, %v, want the 2 there were when it was asked", seen.InUse, err)
		}
		wg.Wait()
	})
}

// What a program holds is its own: it would lose everything if somebody else spoke
// for its session.
func TestALeaseOfAProgramIsNotAnybodys(t *testing.T) {
	over(t, func(t *testing.T, store *counting, d *leasing.Manager) {
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
		_, err = d.Renew(t.Context(), "", "db", id)
		wantErr(t, err, sema.ErrLost)
		wantErr(t, d.Release(t.Context(), "", "db", id), sema.ErrLost)
		time.Sleep(2 * ttl)
		for _, p := range permits {
			wantErr(t, p.Err(), nil)
			p.Release()
		}
	})
}

// If the engine has forgotten the sessions that wait for the next who comes, they are
// not tried one after the other.
func TestManyIdleSessionsMayHaveDied(t *testing.T) {
	over(t, func(t *testing.T, store *counting, d *leasing.Manager) {
		var leases []leasing.Lease
		for range 200 {
			leases = append(leases, acquire(t, d, want(200, 0)))
		}
		for _, lease := range leases {
			wantErr(t, d.Release(t.Context(), "", "db", lease.ID), nil)
		}
		wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Delete: true}), nil)
		store.batches.Store(0)
		acquire(t, d, want(200, 0))
		if n := store.batches.Load(); n > 3 {
			t.Errorf("%d batches for one acquire", n)
		}
	})
}

// Who says the same as somebody else who waits does not wait for longer than it would.
func TestTheSameKeyWaitsNoLonger(t *testing.T) {
	in(t, func(t *testing.T, _ fleet.Store, d *leasing.Manager) {
		holder := want(1, 0)
		holder.Config.TTL *= 100
		acquire(t, d, holder)
		r := want(1, 20*time.Second)
		r.Key = "k"
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = d.Acquire(ctx, r) })
		synctest.Wait()
		start := time.Now()
		wg.Go(func() {
			time.Sleep(18 * time.Second)
			cancel()
		})
		_, err := d.Acquire(t.Context(), r)
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took > 21*time.Second {
			t.Errorf("it waited for %v", took)
		}
		wg.Wait()
	})
}

func TestARateIsNotHeld(t *testing.T) {
	in(t, func(t *testing.T, store fleet.Store, d *leasing.Manager) {
		r := want(1, 0)
		r.Config.Kind, r.Config.Window = protocol.Rate, 60_000_000
		wantErr(t, d.Hold(t.Context(), r, func(leasing.Lease) { t.Error("it has a lease") }), sema.ErrInvalid)
		wantInUse(t, store, 0)
	})
}
