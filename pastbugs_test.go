package sema_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// Each test covers a bug of another semaphore. It fails on an implementation that has
// the bug.

func TestPastBugXSync43a5402_HeavyHeadCancelsAndLightOnesBehindItWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		heavy := acquiring(ctx, s, 2)
		synctest.Wait()
		light := acquiring(t.Context(), s, 1)
		synctest.Wait()
		if isDone(light) {
			t.Fatal("the light waiter overtook the heavy one")
		}
		cancel()
		synctest.Wait()
		wantErr(t, (<-heavy).err, context.Canceled)
		if !isDone(light) {
			t.Fatal("the light waiter was not woken")
		}
		(<-light).permit.Release()
		held.Release()
	})
}

func TestPastBugXSync14be23e_DoneContextNeverAcquires(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("shutting down")
	cancel(cause)
	s := sema.New(5)
	striped := sema.NewStriped(5)
	for range 1000 {
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, cause)
		_, err = s.TryAcquire(ctx, 1)
		wantErr(t, err, cause)
		_, err = s.Acquire(ctx, 0)
		wantErr(t, err, cause)
		_, err = s.TryAcquireFree(ctx)
		wantErr(t, err, cause)
		_, err = striped.Acquire(ctx, 1)
		wantErr(t, err, cause)
		_, err = sema.AcquireAll(ctx, sema.Want{Gate: s, N: 1}, sema.Want{Gate: sema.New(1), N: 1})
		wantErr(t, err, cause)
		wantErr(t, sema.NewCounter(1, 1).Wait(ctx, 1), cause)
		wantErr(t, new(sema.Spin).Acquire(ctx), cause)
		wantErr(t, sema.NewWeighted(1).Acquire(ctx, 1), context.Canceled)
	}
	wantStats(t, s, 0, 0)
}

func TestPastBugGo80183_NegativeWeightChangesNothing(t *testing.T) {
	s := sema.New(3)
	held := mustAcquire(t, s, 1)
	_, err := s.Acquire(t.Context(), -2)
	wantErr(t, err, sema.ErrInvalid)
	_, err = s.TryAcquire(t.Context(), -1<<63)
	wantErr(t, err, sema.ErrInvalid)
	_, err = s.Request(-1).Permit()
	wantErr(t, err, sema.ErrInvalid)
	_, err = sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: -1})
	wantErr(t, err, sema.ErrInvalid)
	wantStats(t, s, 1, 0)
	held.Release()

	w := sema.NewWeighted(3)
	for name, call := range map[string]func(){
		"NewWeighted": func() { sema.NewWeighted(-1) },
		"Acquire":     func() { w.Acquire(t.Context(), -1) },
		"TryAcquire":  func() { w.TryAcquire(-1) },
		"Release":     func() { w.Release(-1) },
	} {
		wantPanic(t, name, call)
	}
	if !w.TryAcquire(3) {
		t.Error("a negative weight took permits")
	}
}

func TestPastBugMarusama458c3ab_WaiterThatJoinsDuringAReleaseIsWoken(t *testing.T) {
	// The window is between finding the semaphore full and joining the queue.
	s := sema.New(1)
	for range 20_000 {
		p := mustAcquire(t, s, 1)
		got := acquiring(t.Context(), s, 1)
		p.Release()
		select {
		case r := <-got:
			r.permit.Release()
		case <-time.After(time.Minute):
			t.Fatal("the waiter missed the release")
		}
	}
}

func TestPastBugMarusama819c071_ReleaseIntoAPartlyFreeSemaphoreWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(3)
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		heavy := acquiring(t.Context(), s, 3)
		synctest.Wait()
		a.Release() // one was free already
		synctest.Wait()
		b.Release()
		synctest.Wait()
		if !isDone(heavy) {
			t.Fatal("not woken")
		}
		(<-heavy).permit.Release()
	})
}

func TestPastBugMarusama565ffd8_OverReleaseIsImpossible(t *testing.T) {
	s := sema.New(2)
	p := mustAcquire(t, s, 1)
	for range 3 {
		p.Release()
	}
	if st := s.Stats(); st.Free != 2 || st.InUse != 0 {
		t.Fatalf("%+v", st)
	}
	wantErr(t, sema.NewCounter(1, 2).Post(2), sema.ErrOverRelease)
	w := sema.NewWeighted(2)
	w.Acquire(t.Context(), 1)
	wantPanic(t, "Weighted.Release", func() { w.Release(2) })
}

func TestPastBugFifomu2_CancelDuringHandOffDoesNotDeadlock(t *testing.T) {
	s := sema.New(1)
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
				if p, err := s.Acquire(ctx, 1); err == nil {
					p.Release()
				}
				cancel()
			}
		})
	}
	racing.Wait()
	wantStats(t, s, 0, 0)
}

func TestPastBugTokio00725f6_CancelOfAWokenWaiterPassesThePermitOn(t *testing.T) {
	for _, order := range []sema.Option{sema.Fair, sema.Unfair} {
		synctest.Test(t, func(t *testing.T) {
			s := sema.New(1, order)
			held := mustAcquire(t, s, 1)
			ctx, cancel := context.WithCancel(t.Context())
			first := acquiring(ctx, s, 1)
			synctest.Wait()
			second := acquiring(t.Context(), s, 1)
			synctest.Wait()
			held.Release() // wakes the first…
			cancel()       // …which is cancelled before it runs
			synctest.Wait()
			if r := <-first; r.err == nil {
				r.permit.Release() // it ran before the cancel
				synctest.Wait()
			}
			if !isDone(second) {
				t.Fatal("the wake-up was lost")
			}
			(<-second).permit.Release()
		})
	}
}

func TestPastBugTokio2237_CancelledWaitersAreRemovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
		}
		wantStats(t, s, 1, 0) // no release was needed to clear the queue
		held.Release()
	})
}

func TestPastBugTokio901f6d2_ObserverMayUseTheSemaphore(t *testing.T) {
	var s *sema.Semaphore
	inside := false
	s = sema.New(1, sema.Observe(sema.ObserverFunc(func(sema.Event) {
		if inside {
			return
		}
		inside = true
		s.Stats()
		s.Resize(s.Stats().Capacity)
		if p, err := s.TryAcquire(context.Background(), 1); err == nil {
			p.Release()
		}
		inside = false
	})))
	mustAcquire(t, s, 1).Release()
	s.Resize(2)
	s.Close()
	wantStats(t, s, 0, 0)
}

func TestPastBugTokio8020_ForgetDoesNotResumeAClosedSemaphore(t *testing.T) {
	s := sema.New(3)
	p := mustAcquire(t, s, 1)
	s.Close()
	s.Forget(p)
	s.Resume()
	s.Resize(10)
	_, err := s.Acquire(t.Context(), 1)
	wantErr(t, err, sema.ErrClosed)
	if st := s.Stats(); !st.Closed || st.InUse != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestPastBugTokioE311523_ReleaseWhileAWaiterIsNotYetServable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(4)
		var parts []sema.Permit
		for range 4 {
			parts = append(parts, mustAcquire(t, s, 1))
		}
		all := acquiring(t.Context(), s, 4)
		synctest.Wait()
		for i, p := range parts {
			if isDone(all) {
				t.Fatalf("granted after %d of 4", i)
			}
			p.Release()
			synctest.Wait()
		}
		(<-all).permit.Release()
		wantStats(t, s, 0, 0)
	})
}

// TestSemaphore_MicrosecondTimeoutStormEnds covers JDK-8386085.

func TestPastBugJDK6801020_RacingReleasesLoseNoWakeUp(t *testing.T) {
	s := sema.New(2)
	for range 5000 {
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		x, y := acquiring(t.Context(), s, 1), acquiring(t.Context(), s, 1)
		var releases sync.WaitGroup
		releases.Go(a.Release)
		releases.Go(b.Release)
		releases.Wait()
		(<-x).permit.Release()
		(<-y).permit.Release()
	}
}

func TestPastBugFollyDb6d0a1_OneReleaseWakesAllThatFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(6)
		held := mustAcquire(t, s, 6)
		var waits []<-chan result
		for _, n := range []int64{1, 2, 3, 1} {
			waits = append(waits, acquiring(t.Context(), s, n))
			synctest.Wait()
		}
		held.Release()
		synctest.Wait()
		for i, w := range waits {
			if got, want := isDone(w), i < 3; got != want {
				t.Fatalf("waiter %d woken: %v", i, got)
			}
		}
		for _, w := range waits {
			(<-w).permit.Release()
		}
	})
}

func TestPastBugFolly5009049_NextHolderReadsWhatThePreviousOneWrote(t *testing.T) {
	// The race detector fails this test if a hand-off does not order memory.
	for _, g := range []sema.Gate{sema.New(1), sema.New(1, sema.Unfair), sema.New(1, sema.LIFO), sema.NewStriped(1)} {
		guarded := 0
		var working sync.WaitGroup
		for range 8 {
			working.Go(func() {
				for range 500 {
					p := mustAcquire(t, g, 1)
					guarded++
					p.Release()
				}
			})
		}
		working.Wait()
		if guarded != 4000 {
			t.Errorf("%T: %d, want 4000", g, guarded)
		}
	}
}

func TestPastBugDotnet34036_CancelRunsNoOtherCallersCode(t *testing.T) {
	// The goroutine that cancels must not run the code of the woken waiters, however slow
	// that code is.
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			go func() {
				s.Acquire(ctx, 1)
				time.Sleep(time.Hour)
			}()
		}
		synctest.Wait()
		began := time.Now()
		cancel()
		held.Release()
		if took := time.Since(began); took != 0 {
			t.Errorf("cancel and release took %v", took)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestPastBugVSThreading521_CancelAdmitsNoExtraCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		leaving := acquiring(ctx, s, 1)
		staying := []<-chan result{acquiring(t.Context(), s, 1), acquiring(t.Context(), s, 1)}
		synctest.Wait()
		cancel()
		synctest.Wait()
		wantErr(t, (<-leaving).err, context.Canceled)
		if isDone(staying[0]) || isDone(staying[1]) {
			t.Fatal("a cancel granted a permit to a waiter")
		}
		held.Release()
		synctest.Wait()
		if isDone(staying[0]) == isDone(staying[1]) {
			t.Fatal("one release must serve exactly one waiter")
		}
		for _, c := range staying {
			if isDone(c) {
				(<-c).permit.Release()
			}
		}
		synctest.Wait()
		wantStats(t, s, 1, 0)
		for _, c := range staying {
			if isDone(c) {
				(<-c).permit.Release()
			}
		}
	})
}

// TestPastBugTokio00725f6 and, under load,
// TestSemaphore_NoPermitIsLostWhenCancelRacesGrant cover cpython#90155, in which a waiter
// that is woken and then cancelled loses the wake-up.

func TestPastBugLLVM46357_ReleaseNotifiesAlsoWhenPermitsWereFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(3)
		held := mustAcquire(t, s, 2) // one stays free
		heavy := acquiring(t.Context(), s, 3)
		synctest.Wait()
		held.Release()
		synctest.Wait()
		if !isDone(heavy) {
			t.Fatal("not woken")
		}
		(<-heavy).permit.Release()

		c := sema.NewCounter(1, 5)
		done := make(chan error, 1)
		go func() { done <- c.Wait(t.Context(), 3) }()
		synctest.Wait()
		c.Post(2)
		synctest.Wait()
		if len(done) == 0 {
			t.Fatal("the counter did not wake its waiter")
		}
	})
}

func TestPastBugInfra3629_CancelIsNeverMissed(t *testing.T) {
	// The window is between the last check of the context and parking.
	s := sema.New(1)
	held := mustAcquire(t, s, 1)
	defer held.Release()
	for range 20_000 {
		ctx, cancel := context.WithCancel(t.Context())
		got := acquiring(ctx, s, 1)
		cancel()
		select {
		case r := <-got:
			wantErr(t, r.err, context.Canceled)
		case <-time.After(time.Minute):
			t.Fatal("the cancel was missed")
		}
	}
}

func TestPastBugTemporal6034_ReleasingTwoServesTwoHoweverTheyQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := mustAcquire(t, s, 2)
		heavy := acquiring(t.Context(), s, 2)
		synctest.Wait()
		light := acquiring(t.Context(), s, 1)
		synctest.Wait()
		held.Release()
		synctest.Wait()
		if !isDone(heavy) || isDone(light) {
			t.Fatal("the two permits must go to the waiter for two only")
		}
		(<-heavy).permit.Release()
		(<-light).permit.Release()
	})
}
