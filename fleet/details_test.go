package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

func TestSemaphore_FastStoreClockDoesNotEndAWaitEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, fastClockStore(t))
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the wait ended after %v", took)
		}
		p.Release()
	})
}

func TestSemaphore_GrantAfterTheContextEndedIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, l := newClient(t, store)
		l.delay = 500 * time.Millisecond
		s := semaphore(t, c, of(1))
		mustAcquire(t, s, 1).Release()
		for range 50 { // whichever of grant and deadline comes first
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), l.delay) // ends when the permit is granted
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			}
			p.Release()
			cancel()
			time.Sleep(10 * time.Second)
			if used, _ := inUse(t, store); used > 0 {
				t.Fatal("a permit is in use that no caller holds")
			}
		}
	})
}

func TestStats_CountsObserverPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventLost {
				panic("observer")
			}
		}))))
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		<-p.Lost()
		synctest.Wait()
		if n := s.Stats().Panics; n != 1 {
			t.Errorf("counted %d panics, want 1", n)
		}
	})
}

func TestSemaphore_LongQueueIsATimeoutNotAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.MaxWait(16*time.Second)))
		p := mustAcquire(t, s, 1)
		time.AfterFunc(9*time.Second, func() { conn.cut.Store(true) }) // the last exchanges fail
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		p.Release()
	})
}

// TestSemaphore_TimeoutCountsTheOtherWaiters checks that the error of a caller whose wait has ended
// does not count the caller itself, as in package sema.
func TestSemaphore_TimeoutCountsTheOtherWaiters(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Second)))
			p := mustAcquire(t, s, 1)
			for _, later := range []int{0, 2} {
				for range later {
					time.AfterFunc(time.Millisecond, func() { s.Acquire(t.Context(), 1) })
				}
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrTimeout)
				if n := faultOf(t, err).Waiters; n != later {
					t.Errorf("%v: %d waiters, want %d", err, n, later)
				}
				time.Sleep(time.Second)
			}
			p.Release()
		})
	}
}

func TestSemaphore_ReportsMismatchesOfRequestedOptions(t *testing.T) {
	t.Parallel()
	reports := func(change func(*protocol.Config), o spec) (found []string) {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			admin, _ := newClient(t, store)
			mustAcquire(t, semaphore(t, admin, of(3)), 1).Release()
			setStored(t, store, change)
			c, _ := newClient(t, store)
			var mu sync.Mutex
			observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == sema.EventMismatched {
					found = append(found, e.Report)
				}
			}))
			semaphore(t, c, o.with(observe)).TryAcquire(t.Context(), 1)
			synctest.Wait()
		})
		return found
	}
	same := of(3, fleet.TTL(15*time.Second))
	for what, change := range map[string]func(*protocol.Config){
		"a version":                func(c *protocol.Config) {},
		"a drain":                  func(c *protocol.Config) { c.Draining = true },
		"a share":                  func(c *protocol.Config) { c.Whole = 9 },
		"another protocol version": func(c *protocol.Config) { c.Protocol++ },
	} {
		if got := reports(change, same); len(got) != 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	for _, want := range []struct {
		text string
		o    spec
	}{
		{"capacity 3, not 4", of(4)},
		{"TTL 15s, not 7s", of(3, fleet.TTL(7*time.Second))},
		{"no rate, not a rate per 2s", of(3, fleet.Rate(2*time.Second))},
		{"ramp 0, not 5", of(3, fleet.Ramp(5))},
		{"no bound of waiters, not at most 6 waiters", of(3, sema.MaxWaiters(6))},
		{"capacity 3, not 4 and TTL 15s, not 7s", of(4, fleet.TTL(7*time.Second))},
	} {
		got := reports(func(*protocol.Config) {}, want.o)
		if len(got) != 1 || !strings.Contains(got[0], `semaphore "db" is stored with `+want.text+"; the stored configuration applies") {
			t.Errorf("%q, want %s", got, want.text)
		}
	}
}

func TestLabels_RoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		labels := map[string]string{"a": "x=y", "b": "quoted \"it\"", "c": "tab\t", "d": "ü", "e": "plain", "f": ""}
		s := semaphore(t, c, of(1, fleet.Labels(labels)))
		asked := maps.Clone(labels)
		labels["e"] = "changed later"
		p := mustAcquire(t, s, 1)
		snapshot, err := c.Info(t.Context(), "db")
		wantErr(t, err, nil)
		if got := snapshot.Holders[0].Labels; !maps.Equal(got, asked) {
			t.Errorf("labels %v, want %v", got, asked)
		}
		_, err = c.Semaphore("db", 1, fleet.Labels(asked))
		wantErr(t, err, nil)
		_, err = c.Semaphore("db", 1, fleet.Labels(labels))
		wantErr(t, err, sema.ErrInvalid)
		p.Release()
	})
}

func TestGuard_AgreesWithAReferenceModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var g fleet.Guard
		n := referenceGuard{revoked: map[protocol.Seq]bool{}}
		for range 60 {
			floor := protocol.Seq(rng.IntN(20))
			f := protocol.Fence{Seq: floor + protocol.Seq(rng.IntN(30)), Floor: floor}
			for from := floor + protocol.Seq(rng.IntN(8)); from < f.Seq; {
				to := min(f.Seq-1, from+protocol.Seq(rng.IntN(4)))
				f.Revoked = append(f.Revoked, protocol.Range{From: from, To: to})
				from = to + 2 + protocol.Seq(rng.IntN(8))
			}
			if got, want := g.Admit(f) == nil, n.admit(f); got != want {
				t.Fatalf("seed %d, %+v: admitted is %v, want %v", seed, f, got, want)
			}
		}
	}
}

func TestClient_PollsWithJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait()
		o.inspections = nil // without that of compareModes
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range c.Watch(ctx, "db", time.Second) {
		}
		o.wantScattered(t, time.Second)
		o.inspections = nil
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Drain(ctx, "db")
		wantErr(t, err, context.DeadlineExceeded)
		if fault := faultOf(t, err); fault.InUse != 1 || fault.Capacity != 1 || !strings.Contains(fault.Detail, "1 permits are still held") {
			t.Errorf("%+v", fault)
		}
		o.inspections = o.inspections[1:] // without that of Configure
		o.wantScattered(t, 200*time.Millisecond)
	})
}

func TestClient_WatchBoundsItsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait() // until compareModes has inspected
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range c.Watch(ctx, "db", time.Nanosecond) {
		}
		if n := len(o.inspections); n > 120 {
			t.Errorf("%d inspections in a second", n)
		}
	})
}

func TestClient_WatchContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait() // until compareModes has inspected
		n := 0
		o.fail = func(context.Context) error {
			if n++; n == 1 {
				return failed
			}
			return nil
		}
		var seen []error
		for _, err := range c.Watch(t.Context(), "db", time.Second) {
			if seen = append(seen, err); len(seen) == 2 {
				break
			}
		}
		if len(seen) != 2 || seen[0] != failed || seen[1] != nil {
			t.Errorf("yielded %v, want an error and then a snapshot", seen)
		}
		// A loop that breaks at an error is not called again.
		o.fail = func(context.Context) error { return failed }
		for range c.Watch(t.Context(), "db", time.Second) {
			break
		}
		// The end of the context is not yielded as an error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o.fail = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		for _, err := range c.Watch(ctx, "db", time.Second) {
			t.Errorf("yielded %v", err)
		}
	})
}

func TestClient_WatchIgnoresHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var last *fleet.Client
		for range 3 {
			last, _ = newClient(t, store)
			mustAcquire(t, semaphore(t, last, of(3)), 1)
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		changes := 0
		for range last.Watch(ctx, "db", time.Second) {
			changes++
		}
		if changes != 1 {
			t.Errorf("%d changes, want 1: there were only heartbeats", changes)
		}
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

func TestClient_ListenRetriesWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: errCut}
		newClient(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		seen := map[time.Duration]bool{}
		for i := range h.calls[1:] {
			gap := h.calls[i+1].Sub(h.calls[i])
			if limit := min(time.Second, 10*time.Millisecond<<min(i, 10)); gap > limit || gap < limit/2 {
				t.Errorf("pause %d is %v, want between half of %v and all of it", i, gap, limit)
			}
			seen[gap] = true
		}
		if n := len(h.calls); n < 60 || n > 130 || len(seen) < n/2 {
			t.Errorf("%d subscriptions with %d different pauses", n, len(seen))
		}
	})
}
