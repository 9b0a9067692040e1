package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestFailOpen_DrainStaysInEffect(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, conn := newClient(t, memstore.New())
			s := semaphore(t, c, of(5, mode, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
			p := mustAcquire(t, s, 1)
			wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.Draining = true }), nil)
			time.Sleep(10 * time.Second) // until the client knows
			conn.cut.Store(true)
			time.Sleep(time.Minute)
			if !s.Stats().FailedOpen {
				t.Fatal("the semaphore has not failed open")
			}
			for _, n := range []int64{0, 1} {
				_, err := s.Acquire(t.Context(), n)
				wantErr(t, err, sema.ErrDraining)
			}
			p.Release()
		})
	}
}

func TestFailOpen_AppliesAfterFailOpenAfter(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, conn := newClient(t, failingStore{memstore.New()})
			conn.cut.Store(cut)
			s := semaphore(t, c, of(5, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
			start := time.Now()
			p := mustAcquire(t, s, 1)
			took, late := time.Since(start), time.Millisecond
			if cut { // the third exchange begins after two pauses
				late = 40 * time.Millisecond
			}
			if took < 3*time.Second || took > 3*time.Second+late {
				t.Errorf("failed open after %v, want 3 s without a reply", took)
			}
			p.Release()
		})
	}
}

func TestFailOpen_OneLostMessageIsNotEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, _ := newClient(t, w)
		s := semaphore(t, c, of(1, sema.Observe(&d), fleet.FailOpen(1), fleet.FailOpenAfter(time.Second)))
		p := mustAcquire(t, s, 1)
		for range 20 {
			w.lose.Store(1)
			time.Sleep(10 * time.Second)
		}
		if n := d.count(sema.EventFailedOpen); n > 0 {
			t.Errorf("failed open %d times after one lost message each", n)
		}
		p.Release()
	})
}

func TestFailOpen_ProbesTheStoreBetweenHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.TTL(3*time.Minute), fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second), fleet.RecoverAfter(4*time.Second)))
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		mustAcquire(t, s, 1).Release()
		if !s.Stats().FailedOpen {
			t.Fatal("the semaphore has not failed open")
		}
		conn.cut.Store(false)
		time.Sleep(7 * time.Second)
		if s.Stats().FailedOpen {
			t.Error("still failed open although the store has been reachable for 7 s")
		}
		wantErr(t, p.Err(), nil)
		p.Release()
	})
}

func TestFailOpen_PoolGrantsNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(9, fleet.ModePooled, fleet.TTL(3*time.Minute), fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
		block := mustAcquire(t, s, 5)
		conn.cut.Store(true)
		p := mustAcquire(t, s, 1)
		block.Release() // into the pool, which still exists
		if stats := s.Stats(); !stats.FailedOpen || stats.Blocks != 5 || stats.HeldOpen != 1 {
			t.Fatalf("%+v", stats)
		}
		q := mustAcquire(t, s, 1)
		if _, leased := fleet.LeaseOf(q); leased {
			t.Error("the permit is from the pool")
		}
		q.Release()
		_, err := s.TryAcquire(t.Context(), 2)
		wantErr(t, err, sema.ErrFull)
		p.Release()
	})
}

func TestFailOpen_CloseWaitsForPermitsOfTheLocalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(3, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
		conn.cut.Store(true)
		p := mustAcquire(t, s, 1)
		start := time.Now()
		time.AfterFunc(5*time.Second, p.Release)
		wantErr(t, c.Close(t.Context()), nil)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A slowQueue is an observer that delays callers which are about to wait.
type slowQueue struct{ d time.Duration }

func (o slowQueue) Observe(e sema.Event) {
	if e.Kind == sema.EventQueued {
		time.Sleep(o.d)
	}
}

// TestFailOpen_DrainRejectsACallerAboutToWait checks that a drain which arrives while an observer
// runs rejects the caller that the observer delays.
func TestFailOpen_DrainRejectsACallerAboutToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, conn := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(5, fleet.TTL(6*time.Second), sema.Observe(slowQueue{20 * time.Second}), fleet.FailOpen(1), fleet.FailOpenAfter(3*time.Second), fleet.RecoverAfter(time.Minute)))
		mustAcquire(t, s, 1).Release()
		conn.cut.Store(true)
		time.Sleep(30 * time.Second)
		p := mustAcquire(t, s, 1)
		if !s.Stats().FailedOpen {
			t.Fatal("not failed open")
		}
		got := make(chan error, 1)
		go func() {
			p, err := s.Acquire(context.Background(), 1)
			p.Release()
			got <- err
		}()
		time.Sleep(time.Second)
		wantErr(t, b.Drain(t.Context(), "db"), nil)
		conn.cut.Store(false)
		time.Sleep(15 * time.Second)
		if !s.Stats().Draining || !s.Stats().FailedOpen {
			t.Fatalf("%+v", s.Stats())
		}
		time.Sleep(10 * time.Second)
		p.Release()
		wantErr(t, <-got, sema.ErrDraining)
	})
}

// failedOpen returns a semaphore whose store is unreachable, and whose only local permit is
// held.
func failedOpen(t *testing.T, opts ...fleet.Option) (*fleet.Client, *fleet.Semaphore, *link, sema.Permit) {
	t.Helper()
	c, l := newClient(t, memstore.New())
	s := semaphore(t, c, of(10, fleet.TTL(3*time.Second), sema.MaxWait(time.Hour), fleet.FailOpen(1)).with(opts...))
	mustAcquire(t, s, 1).Release()
	l.cut.Store(true)
	time.Sleep(10 * time.Second) // until a pool has lost its blocks
	p := mustAcquire(t, s, 1)
	if !s.Stats().FailedOpen {
		t.Fatal("the semaphore has not failed open")
	}
	return c, s, l, p
}

func TestFailOpen_WaitersContinueAtTheStoreAfterRecovery(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			_, s, l, p := failedOpen(t, mode)
			got := make(chan sema.Permit, 1)
			go func() { got <- mustAcquire(t, s, 1) }()
			time.Sleep(time.Second)
			l.cut.Store(false)
			select {
			case q := <-got:
				q.Release()
			case <-time.After(time.Minute):
				t.Errorf("the caller waits although 10 permits are free: %+v", s.Stats())
			}
			p.Release()
			synctest.Wait()
		})
	}
}

func TestFailOpen_DrainRejectsWaitersOfTheLocalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s, l, p := failedOpen(t)
		failed := make(chan error, 1)
		acquire := func() { _, err := s.Acquire(t.Context(), 1); failed <- err }
		go acquire()
		time.Sleep(time.Second)
		l.cut.Store(false)
		wantErr(t, c.Drain(t.Context(), "db"), nil)
		wantErr(t, <-failed, sema.ErrDraining)
		if !s.Stats().FailedOpen {
			t.Error("the caller was rejected only after the recovery")
		}
		go acquire()
		wantErr(t, <-failed, sema.ErrDraining)
		wantErr(t, c.Resume(t.Context(), "db"), nil)
		time.Sleep(time.Minute)
		mustAcquire(t, s, 1).Release()
		p.Release()
	})
}

func TestSemaphore_SlowObserverDelaysNoOtherCaller(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModePooled, fleet.ModeExact} {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Bool
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Hour), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if e.Kind == sema.EventQueued && slow.CompareAndSwap(true, false) {
					time.Sleep(time.Minute)
				}
			}))))
			p := mustAcquire(t, s, 1)
			slow.Store(true)
			go func() { mustAcquire(t, s, 1).Release() }()
			synctest.Wait()
			start := time.Now()
			go func() { time.Sleep(time.Second); p.Release() }()
			mustAcquire(t, s, 1).Release()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("mode %d: waited %v for a free permit", mode, took)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}
