package fleet_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// TestDelay_OfASingleClientIsExact to a 64th of the window.
func TestDelay_OfASingleClientIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(10, fleet.Rate(64*time.Second)))
		if d := s.Delay(4); d != 0 {
			t.Errorf("Delay of a rate of which nothing is known: %v", d)
		}
		for range 5 {
			mustAcquire(t, s, 2)
			time.Sleep(10 * time.Second)
		}
		for n, want := range map[int64]time.Duration{1: 14, 2: 14, 3: 24, 10: 54} {
			if d := s.Delay(n); d < want*time.Second || d > (want+1)*time.Second {
				t.Errorf("Delay(%d) = %v, want %d s", n, d, want)
			}
		}
		if d := s.Delay(11); d != math.MaxInt64 {
			t.Errorf("Delay of more than the capacity: %v", d)
		}
		_, err := s.TryAcquire(t.Context(), 4)
		if d := err.(*sema.Error).After; d < 24*time.Second || d > 25*time.Second {
			t.Errorf("%v, with After %v", err, d)
		}
		time.Sleep(s.Delay(3))
		if _, err := s.TryAcquire(t.Context(), 3); err != nil {
			t.Error(err)
		}
		p := mustAcquire(t, s, 1)
		if s.Delay(1) == 0 {
			t.Error("free after all was acquired")
		}
		s.Settle(p, 0)
		if d := s.Delay(1); d != 0 {
			t.Errorf("Delay after a refund: %v", d)
		}
	})
}

func TestDelay_AssumesThatOthersUseTheRateEvenly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		o := of(100, fleet.Rate(100*time.Second))
		for range 90 {
			mustAcquire(t, semaphore(t, a, o), 1)
			time.Sleep(time.Second)
		}
		s := semaphore(t, b, o)
		mustAcquire(t, s, 10)
		if d := s.Delay(45); d < 40*time.Second || d > 60*time.Second {
			t.Errorf("Delay(45) = %v, want about half of the window", d)
		}
		if d := s.Delay(100); d > 101*time.Second {
			t.Errorf("Delay(100) = %v, want at most a window", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 3 {
			go s.Acquire(ctx, 60)
		}
		time.Sleep(time.Second)
		if d := s.Delay(60); d < 100*time.Second || d > 400*time.Second {
			t.Errorf("Delay behind 180 queued permits: %v", d)
		}
	})
}

// TestPauseUntil_PausesTheFleet checks that other clients are paused until then, and not
// longer, and that the latest permit costs afterwards what it did.
func TestPauseUntil_PausesTheFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		o := of(10, fleet.Rate(time.Minute))
		own, other := semaphore(t, a, o), semaphore(t, b, o)
		p := mustAcquire(t, own, 3)
		start := time.Now()
		own.PauseUntil(start.Add(20 * time.Second))
		sent()
		if d := own.Delay(1); d < 19*time.Second || d > 20*time.Second {
			t.Errorf("Delay during the pause: %v", d)
		}
		for name, s := range map[string]*fleet.Semaphore{"own": own, "other": other} {
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrFull)
			if after := err.(*sema.Error).After; name == "own" && (after < 19*time.Second || after > 20*time.Second) {
				t.Errorf("%v, with After %v", err, after)
			}
		}
		own.Settle(p, 2) // takes effect when the pause ends
		var wg sync.WaitGroup
		for _, s := range []*fleet.Semaphore{own, other} {
			wg.Go(func() {
				mustAcquire(t, s, 4)
				if took := time.Since(start); took < 20*time.Second || took > 20100*time.Millisecond {
					t.Errorf("granted after %v, want 20 s", took)
				}
			})
		}
		wg.Wait()
		wantUsed(t, store, 10)
	})
}

// TestPauseUntil_KeepsTheOrder of those that wait for the end of the pause.
func TestPauseUntil_KeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.Rate(time.Second)))
		s.PauseUntil(time.Now().Add(10 * time.Second))
		order := make(chan int, 10)
		for i := range 5 {
			go func() {
				mustAcquire(t, s, 1)
				order <- i
			}()
			synctest.Wait()
		}
		if st := s.Stats(); st.Waiters != 5 || st.Waited != 5 {
			t.Errorf("%d wait, %d have", st.Waiters, st.Waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		for want := range 5 {
			if got := <-order; got != want {
				t.Errorf("%d was granted, want %d", got, want)
			}
		}
	})
}

// TestPauseUntil_ATimeThatHasPassedEndsIt, for the other clients too.
func TestPauseUntil_ATimeThatHasPassedEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		o := of(10, fleet.Rate(time.Minute))
		own, other := semaphore(t, a, o), semaphore(t, b, o)
		mustAcquire(t, own, 1)
		own.PauseUntil(time.Now().Add(time.Hour))
		own.PauseUntil(time.Now().Add(30 * time.Second))
		sent()
		own.PauseUntil(time.Now())
		own.PauseUntil(time.Time{})
		sent()
		mustAcquire(t, own, 1)
		if _, err := other.TryAcquire(t.Context(), 8); err != nil {
			t.Error(err)
		}
	})
}

// TestPauseUntil_OfAClientThatCrashes ends for the others when its permit leaves the window.
func TestPauseUntil_OfAClientThatCrashes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, conn := newClient(t, store)
		b, _ := newClient(t, store)
		o := of(10, fleet.Rate(time.Minute))
		own, other := semaphore(t, a, o), semaphore(t, b, o)
		mustAcquire(t, own, 1)
		time.Sleep(10 * time.Second)
		start := time.Now()
		own.PauseUntil(start.Add(time.Hour))
		sent()
		conn.cut.Store(true)
		mustAcquire(t, other, 1)
		if took := time.Since(start); took < 49*time.Second || took > 55*time.Second {
			t.Errorf("the other client was paused for %v, want 50 s", took)
		}
	})
}

// TestPauseUntil_SettlementsOfItsPermitCount although they arrive during the pause, and the
// permit has left the window when it ends.
func TestPauseUntil_SettlementsOfItsPermitCount(t *testing.T) {
	t.Parallel()
	for _, cost := range []int64{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
			p := mustAcquire(t, s, 3)
			s.PauseUntil(time.Now().Add(90 * time.Second))
			time.Sleep(time.Second)
			s.Settle(p, cost)
			time.Sleep(90 * time.Second)
			mustAcquire(t, s, 1)
			wantUsed(t, store, 1+max(0, cost-3))
		})
	}
}

// TestFailOpen_RateIsBoundedInEachWindow checks that the local limit of a rate is one: with a
// store that is away, no window admits more.
func TestFailOpen_RateIsBoundedInEachWindow(t *testing.T) {
	t.Parallel()
	for _, observed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var d eventLog
			c, conn := newClient(t, memstore.New())
			opts := []fleet.Option{fleet.Rate(20 * time.Second), fleet.TTL(6 * time.Second), fleet.FailOpen(4), fleet.FailOpenAfter(3 * time.Second), fleet.RecoverAfter(3 * time.Second)}
			if observed {
				opts = append(opts, sema.Observe(&d))
			}
			s := semaphore(t, c, of(100, opts...))
			mustAcquire(t, s, 1)
			conn.cut.Store(true)
			var at []time.Time
			for range 40 { // mustAcquire waits until the local limit applies
				mustAcquire(t, s, 1).Release()
				at = append(at, time.Now())
			}
			if !s.Stats().FailedOpen {
				t.Fatal("not failed open")
			}
			for i := 4; i < len(at); i++ {
				if window := at[i].Sub(at[i-4]); window < 20*time.Second {
					t.Errorf("5 permits within %v", window)
				}
			}
			if took := at[len(at)-1].Sub(at[0]); took > 181*time.Second {
				t.Errorf("40 permits took %v, want 3 minutes", took)
			}
			if observed && d.count(sema.EventFailedOpen) != 1 {
				t.Errorf("reported %d times", d.count(sema.EventFailedOpen))
			}
			conn.cut.Store(false)
			time.Sleep(30 * time.Second)
			if s.Stats().FailedOpen {
				t.Error("still failed open")
			}
			mustAcquire(t, s, 50)
			wantErr(t, s.Close(t.Context()), nil) // nothing is held
		})
	}
}

func TestFailOpen_RateIsSettledAndPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(100, fleet.Rate(time.Minute), fleet.TTL(6*time.Second), fleet.FailOpen(10), fleet.FailOpenAfter(time.Second)))
		conn.cut.Store(true)
		p := mustAcquire(t, s, 10)
		if d := s.Delay(1); d != time.Minute {
			t.Errorf("Delay at the local limit: %v", d)
		}
		s.Settle(p, 4) // a refund of 6
		a, b, err := mustAcquire(t, s, 6).Split(2)
		wantErr(t, err, nil)
		s.Settle(p, 0)
		_, err = s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		s.Settle(a, 0)
		mustAcquire(t, s, 2)
		s.Settle(b, 7) // 3 more: those are charged when they are free
		time.Sleep(61 * time.Second)
		if st := s.Stats(); !st.FailedOpen || st.HeldOpen != 3 {
			t.Errorf("%d of the local limit are used, want 3", st.HeldOpen)
		}
		mustAcquire(t, s, 7)
		s.PauseUntil(time.Now().Add(2 * time.Minute))
		start := time.Now()
		mustAcquire(t, s, 10)
		if took := time.Since(start); took < 2*time.Minute || took > 125*time.Second {
			t.Errorf("granted after %v, want 2 minutes", took)
		}
	})
}

// TestClient_UsesTheTimeOfABubble without any setting.
func TestClient_UsesTheTimeOfABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := fleet.New(memstore.New())
		defer c.Close(t.Context(), fleet.CloseRelease)
		s, err := c.Semaphore("db", 1)
		wantErr(t, err, nil)
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Hour)
		wantErr(t, p.Err(), nil)
		if st := s.Stats(); st.Batches < 700 || st.Batches > 900 {
			t.Errorf("%d batches in an hour, want one each 5 s", st.Batches)
		}
		p.Release()
	})
}

// TestFailOpen_UseOfTheLocalRateCountsAtTheStore when that replies again, so that the window
// in which the local limit ends admits no more than the rate.
func TestFailOpen_UseOfTheLocalRateCountsAtTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		s := semaphore(t, c, of(100, fleet.Rate(time.Minute), fleet.TTL(6*time.Second), fleet.FailOpen(40), fleet.FailOpenAfter(time.Second), fleet.RecoverAfter(time.Second)))
		conn.cut.Store(true)
		mustAcquire(t, s, 40)
		conn.cut.Store(false)
		for s.Stats().FailedOpen {
			time.Sleep(100 * time.Millisecond)
		}
		sent()
		wantUsed(t, store, 40)
		_, err := s.TryAcquire(t.Context(), 61)
		wantErr(t, err, sema.ErrFull)
		mustAcquire(t, s, 60)
	})
}
