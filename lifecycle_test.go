package sema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestResize_ReleasesPayDebtBeforeTheQueueIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(5)
		var held []sema.Permit
		for range 5 {
			held = append(held, mustAcquire(t, s, 1))
		}
		next := acquiring(t.Context(), s, 1)
		synctest.Wait()
		s.Resize(2)
		if st := s.Stats(); st.Debt != 3 || st.InUse != 5 || st.Capacity != 2 {
			t.Fatalf("%+v", st)
		}
		for i, p := range held[:4] {
			if isDone(next) {
				t.Fatalf("served after %d releases with a debt of %d", i, 3-i)
			}
			p.Release()
			synctest.Wait()
		}
		if !isDone(next) {
			t.Fatal("not served after the debt was paid")
		}
		(<-next).permit.Release()
		held[4].Release()
		if st := s.Stats(); st.Free != 2 || st.Debt != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestResize_GrowthPaysDebtAndServesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(4)
		held := mustAcquire(t, s, 4)
		s.Resize(1)
		next := acquiring(t.Context(), s, 1)
		synctest.Wait()
		s.Resize(4)
		synctest.Wait()
		if isDone(next) {
			t.Fatal("served while all permits are in use")
		}
		s.Resize(5)
		synctest.Wait()
		if !isDone(next) {
			t.Fatal("growth did not serve the queue")
		}
		(<-next).permit.Release()
		held.Release()
		wantStats(t, s, 0, 0)
	})
}

func TestResize_PausedSemaphoreQueuesAndServesWhenResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(0)
		small, large := acquiring(t.Context(), s, 2), acquiring(t.Context(), s, 100)
		synctest.Wait()
		if isDone(small) || isDone(large) {
			t.Fatal("nothing is too large for a paused semaphore")
		}
		_, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		s.Resize(10)
		synctest.Wait()
		wantErr(t, (<-large).err, sema.ErrTooLarge)
		(<-small).permit.Release()
	})
}

func TestParkOversize_DelaysNoOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2, sema.ParkOversize)
		big := acquiring(t.Context(), s, 5)
		synctest.Wait()
		for range 3 {
			mustAcquire(t, s, 2).Release()
		}
		_, err := s.TryAcquire(t.Context(), 5)
		wantErr(t, err, sema.ErrTooLarge)
		s.Resize(5)
		synctest.Wait()
		if !isDone(big) {
			t.Fatal("not served when it fits")
		}
		(<-big).permit.Release()
	})
}

func TestAcquire_TooLargeFailsAtOnceAlsoAfterAShrink(t *testing.T) {
	s := sema.New(10)
	held := mustAcquire(t, s, 10)
	s.Resize(5)
	_, err := s.Acquire(t.Context(), 6) // 10 are held, but the target is 5
	wantErr(t, err, sema.ErrTooLarge)
	held.Release()
	_, err = s.TryAcquire(t.Context(), 6)
	wantErr(t, err, sema.ErrTooLarge)
}

func TestDrain_RejectsQueuedAndNewAndWaitsForHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := mustAcquire(t, s, 2)
		queued := acquiring(t.Context(), s, 1)
		ticket := s.Request(1)
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		synctest.Wait()
		wantErr(t, (<-queued).err, sema.ErrDraining)
		_, err := ticket.Permit()
		wantErr(t, err, sema.ErrDraining)
		_, err = s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrDraining)
		_, err = s.Acquire(t.Context(), 0)
		wantErr(t, err, sema.ErrDraining)
		if len(drained) > 0 {
			t.Fatal("drained while permits are held")
		}
		held.Release()
		wantErr(t, <-drained, nil)
		s.Resume()
		mustAcquire(t, s, 1).Release()
	})
}

func TestDrain_TimeoutReportsHeldPermitsAndKeepsDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(5, sema.Name("db"))
		held := mustAcquire(t, s, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Drain(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "3 of 5 permits are still held") || !strings.Contains(sema.Hint(err), "SEMA_DEBUG") || !strings.Contains(err.Error(), `"db"`) {
			t.Errorf("%v", err)
		}
		if !s.Stats().Draining {
			t.Error("no longer draining")
		}
		held.Release()
		wantErr(t, s.Drain(t.Context()), nil)
	})
}

func TestResume_EndsADrainThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		synctest.Wait()
		s.Resume()
		if err := <-drained; err == nil || !strings.Contains(err.Error(), "resumed") {
			t.Errorf("%v", err)
		}
		held.Release()
		mustAcquire(t, s, 1).Release()
	})
}

func TestWaitIdle_RejectsNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		wantErr(t, s.WaitIdle(t.Context()), nil)
		a := mustAcquire(t, s, 1)
		idle := make(chan error, 2)
		for range 2 {
			go func() { idle <- s.WaitIdle(t.Context()) }()
		}
		synctest.Wait()
		b := mustAcquire(t, s, 1)
		a.Release()
		synctest.Wait()
		if len(idle) > 0 {
			t.Fatal("idle while a permit is held")
		}
		b.Release()
		synctest.Wait()
		if len(idle) != 2 {
			t.Fatal("WaitIdle did not return")
		}
	})
}

func TestClose_RejectsWaitersAndAcceptsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		queued := acquiring(t.Context(), s, 1)
		synctest.Wait()
		wantErr(t, s.Close(), nil)
		wantErr(t, s.Close(), nil)
		synctest.Wait()
		wantErr(t, (<-queued).err, sema.ErrClosed)
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrClosed)
		_, err = s.TryAcquire(t.Context(), 0)
		wantErr(t, err, sema.ErrClosed)
		_, err = s.Request(1).Permit()
		wantErr(t, err, sema.ErrClosed)
		held.Release()
		wantStats(t, s, 0, 0)
		wantErr(t, s.WaitIdle(t.Context()), nil)
	})
}

func TestMaxWaiters_RejectsOneTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1, sema.MaxWaiters(2))
		held := mustAcquire(t, s, 1)
		a := acquiring(t.Context(), s, 1)
		synctest.Wait()
		b := acquiring(t.Context(), s, 1)
		synctest.Wait()
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		wantErr(t, err, sema.ErrFull)
		_, err = s.Request(1).Permit()
		wantErr(t, err, sema.ErrQueueFull)
		held.Release()
		(<-a).permit.Release()
		(<-b).permit.Release()

		none := sema.New(1, sema.MaxWaiters(0))
		p := mustAcquire(t, none, 1)
		_, err = none.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		p.Release()
	})
}

func TestMaxWait_EndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1, sema.MaxWait(3*time.Second))
		held := mustAcquire(t, s, 1)
		began := time.Now()
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, context.Canceled) {
			t.Error("a timeout matches context.Canceled")
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		ticket := s.Request(1)
		<-ticket.Ready()
		_, err = ticket.Permit()
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("the ticket took %v", took-3*time.Second)
		}
		held.Release()
		wantStats(t, s, 0, 0)
	})
}

func TestForget_ReducesTheCapacity(t *testing.T) {
	s := sema.New(5)
	p := mustAcquire(t, s, 2)
	s.Forget(p)
	s.Forget(p)
	p.Release()
	if st := s.Stats(); st.Capacity != 3 || st.InUse != 0 || st.Free != 3 {
		t.Fatalf("%+v", st)
	}
	_, err := s.Acquire(t.Context(), 4)
	wantErr(t, err, sema.ErrTooLarge)
	other := mustAcquire(t, sema.New(1), 1)
	wantPanic(t, "Forget of another semaphore's permit", func() { s.Forget(other) })
	if !other.Held() {
		t.Error("the permit was ended all the same")
	}
	s.Forget(sema.Permit{})
}

func TestForget_UnderDebtNeverMakesCapacityNegative(t *testing.T) {
	s := sema.New(6)
	a, b := mustAcquire(t, s, 4), mustAcquire(t, s, 2)
	s.Resize(1)
	s.Forget(a)
	if st := s.Stats(); st.Capacity != 0 || st.InUse != 2 || st.Debt != 2 {
		t.Fatalf("%+v", st)
	}
	b.Release()
	if st := s.Stats(); st.InUse != 0 || st.Debt != 0 || st.Free != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestSemaphore_RejectsInvalidArgumentsWithAReason(t *testing.T) {
	s := sema.New(1)
	wantPanic(t, "New(-1)", func() { sema.New(-1) })
	wantPanic(t, "Resize(-1)", func() { s.Resize(-1) })
	wantPanic(t, "MaxWaiters(-1)", func() { sema.MaxWaiters(-1) })
	wantPanic(t, "MaxWait(0)", func() { sema.MaxWait(0) })
	wantPanic(t, "WarnHold(0)", func() { sema.WarnHold(0) })
	wantPanic(t, "Observe(nil)", func() { sema.Observe(nil) })
	wantPanic(t, "Diagnose(9)", func() { sema.Diagnose(9) })
	wantPanic(t, "zero Semaphore", func() { new(sema.Semaphore).Acquire(t.Context(), 1) })
	wantPanic(t, "zero Semaphore", func() { new(sema.Semaphore).Resize(1) })
	wantPanic(t, "zero Semaphore", func() { new(sema.Semaphore).TryAcquire(t.Context(), 1) })
	var noContext context.Context
	for _, g := range []sema.Gate{s, sema.NewStriped(1)} {
		_, err := g.Acquire(noContext, 1)
		wantErr(t, err, sema.ErrInvalid)
		_, err = g.TryAcquire(noContext, 1)
		wantErr(t, err, sema.ErrInvalid)
	}
	_, err := s.TryAcquireFree(noContext)
	wantErr(t, err, sema.ErrInvalid)
	wantErr(t, s.Drain(noContext), sema.ErrInvalid)
	wantErr(t, s.WaitIdle(noContext), sema.ErrInvalid)
	_, err = sema.AcquireAll(noContext)
	wantErr(t, err, sema.ErrInvalid)
	if s.Stats().Draining {
		t.Error("a rejected Drain started draining")
	}
	wantStats(t, s, 0, 0)
}

func TestMaxWait_TimeoutThatRacesACancelDoesNotAcquire(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := sema.New(1, sema.MaxWait(time.Millisecond))
			held := mustAcquire(t, s, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Millisecond) // the moment MaxWait passes
				cancel()
				held.Release()
			}()
			if p, err := s.Acquire(ctx, 1); err == nil {
				t.Error("acquired after the context had ended")
				p.Release()
			}
			synctest.Wait()
			wantStats(t, s, 0, 0)
		})
	}
}

func TestClose_DuringDrainIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		synctest.Wait()
		s.Close()
		s.Resume()
		synctest.Wait()
		if len(drained) > 0 {
			t.Fatal("a closed semaphore was resumed")
		}
		held.Release()
		wantErr(t, <-drained, nil)
	})
}
