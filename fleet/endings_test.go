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

// TestSemaphore_InlineTryAcquireIsBoundedByTryTimeout checks that a try whose context cannot be
// cancelled, and which could send its batch itself, is bounded.
func TestSemaphore_InlineTryAcquireIsBoundedByTryTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.cut.Store(true)
		start := time.Now()
		_, err := s.TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v, want TryTimeout", took)
		}
		w.cut.Store(false)
		_ = c.Close(context.Background(), fleet.CloseAbandon)
	})
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

func TestStats_ReleaseOfARateKeepsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(10, fleet.Rate(time.Hour)))
		p := mustAcquire(t, s, 5)
		before := s.Stats()
		p.Release()
		if after := s.Stats(); after.InUse != before.InUse || after.Free != before.Free {
			t.Errorf("%d in use, %d free after the release; %d and %d before", after.InUse, after.Free, before.InUse, before.Free)
		}
	})
}

func TestStats_ReleaseOfALostPermitKeepsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, conn := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(5))
		lost := mustAcquire(t, s, 2)
		conn.cut.Store(true)
		<-lost.Lost()
		time.Sleep(time.Minute)
		mustAcquire(t, semaphore(t, b, of(5)), 4)
		conn.cut.Store(false)
		p := mustAcquire(t, s, 1)
		before := s.Stats().InUse
		lost.Release()
		if after := s.Stats().InUse; after != before {
			t.Errorf("%d in use after the release of a lost permit, %d before", after, before)
		}
		p.Release()
	})
}

func TestStats_SplitIsNotAcquired(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newClient(t, memstore.New())
				s := semaphore(t, c, of(5, mode))
				p := mustAcquire(t, s, 2)
				x, y, err := p.Split(1)
				wantErr(t, err, nil)
				if n := s.Stats().Acquired; n != 1 {
					t.Errorf("%d acquired, want 1", n)
				}
				x.Release()
				y.Release()
			})
		})
	}
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
