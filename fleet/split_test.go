package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// admit passes the fence of a permit to a guard.
func admit(t *testing.T, g *fleet.Guard, p sema.Permit) error {
	t.Helper()
	l, ok := fleet.LeaseOf(p)
	if !ok {
		t.Fatal("the permit has no lease")
	}
	return g.Admit(l.Fence)
}

// TestLease_SplitPartsHaveFencesOfTheirOwn checks that a guard rejects either part of a permit
// after that part was released and granted to another client.
func TestLease_SplitPartsHaveFencesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]int{"first": 0, "rest": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, _ := newClient(t, store)
				b, _ := newClient(t, store)
				o := of(3)
				whole := mustAcquire(t, semaphore(t, a, o), 3)
				first, rest, err := whole.Split(2)
				wantErr(t, err, nil)
				parts := []sema.Permit{first, rest}
				released, kept := parts[release], parts[1-release]
				var guard fleet.Guard
				wantErr(t, admit(t, &guard, first), nil)
				wantErr(t, admit(t, &guard, rest), nil)
				weight := released.Weight()
				released.Release()
				synctest.Wait()
				other := mustAcquire(t, semaphore(t, b, o), weight)
				wantErr(t, admit(t, &guard, other), nil)
				wantErr(t, admit(t, &guard, released), sema.ErrLost)
				wantErr(t, admit(t, &guard, kept), nil)
				kept.Release()
				other.Release()
				synctest.Wait()
				if used, _ := inUse(t, store); used != 0 {
					t.Errorf("%d in use after all were released", used)
				}
			})
		})
	}
}

// TestLease_SplitDuringAnOutageChangesNothing checks that a split without a reply leaves the permit
// whole. If the store has split the lease nevertheless, both leases are released with it.
func TestLease_SplitDuringAnOutageChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after bool }{
		"the request is lost":               {before: true},
		"the reply is lost":                 {after: true},
		"the reply comes after the release": {after: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				client, conn := newClient(t, store)
				s := semaphore(t, client, of(3, fleet.TTL(time.Minute)))
				whole := mustAcquire(t, s, 3)
				conn.cut.Store(c.before)
				conn.loseReplies.Store(c.after)
				_, _, err := whole.Split(2)
				wantErr(t, err, sema.ErrUnavailable)
				if !whole.Held() || whole.Weight() != 3 {
					t.Fatalf("weight %d, held %v; want the whole permit", whole.Weight(), whole.Held())
				}
				_, _, err = whole.Split(1)
				wantErr(t, err, sema.ErrUnavailable)
				if name == "the reply comes after the release" {
					whole.Release()
				}
				conn.cut.Store(false)
				conn.loseReplies.Store(false)
				time.Sleep(20 * time.Second)
				whole.Release()
				time.Sleep(time.Second)
				if used, _ := inUse(t, store); used != 0 {
					t.Errorf("%d in use after the release", used)
				}
			})
		})
	}
}

// TestLease_UndecidedSplitSurvivesCloseAndFailOpen checks that a split which is not decided when
// its semaphore is closed, or fails open, leaves the permit whole at the store, too.
func TestLease_UndecidedSplitSurvivesCloseAndFailOpen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"close", "close after TryTimeout", "fail open"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, conn := newClient(t, store)
				b, _ := newClient(t, store)
				o := of(3, fleet.TTL(time.Minute))
				if name == "fail open" {
					o = of(3, fleet.TTL(time.Minute), fleet.FailOpen(1), fleet.FailOpenAfter(3*time.Second))
				}
				s := semaphore(t, a, o)
				whole := mustAcquire(t, s, 3)
				conn.cut.Store(true)
				split := make(chan error, 1)
				go func() { _, _, err := whole.Split(2); split <- err }()
				closed := make(chan error, 1)
				switch name {
				case "close":
					time.Sleep(time.Second / 2)
					go func() { closed <- s.Close(context.Background()) }()
				case "close after TryTimeout":
					time.Sleep(2 * time.Second)
					go func() { closed <- s.Close(context.Background()) }()
				case "fail open":
					time.Sleep(8 * time.Second)
				}
				synctest.Wait()
				conn.cut.Store(false)
				err := <-split
				time.Sleep(10 * time.Second)
				if err == nil {
					return // the split succeeded
				}
				if err := whole.Err(); err != nil {
					t.Fatal(err)
				}
				p, err := semaphore(t, b, of(3, fleet.TTL(time.Minute))).TryAcquire(t.Context(), 1)
				if err == nil {
					t.Errorf("another client gets a permit although 3 of 3 are held (%v, %d)", whole.Held(), whole.Weight())
				}
				p.Release()
				whole.Release()
				time.Sleep(time.Second)
			})
		})
	}
}
