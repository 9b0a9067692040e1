package sema_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestStriped_NeverExceedsItsCapacity(t *testing.T) {
	for _, capacity := range []int64{1, 3, 8, 100} {
		s := sema.NewStriped(capacity)
		var held, over atomic.Int64
		var working sync.WaitGroup
		for w := range 32 {
			working.Go(func() {
				for i := range 2000 {
					ctx, cancel := context.WithCancel(t.Context())
					if (i+w)%5 == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Microsecond)
					}
					p, err := s.Acquire(ctx, 1)
					cancel()
					if err != nil {
						continue
					}
					if held.Add(1) > capacity {
						over.Add(1)
					}
					held.Add(-1)
					p.Release()
					p.Release()
				}
			})
		}
		working.Wait()
		if n := over.Load(); n > 0 {
			t.Errorf("capacity %d exceeded %d times", capacity, n)
		}
		// Every permit can be acquired: none was lost and none was created.
		var all []sema.Permit
		for {
			p, err := s.TryAcquire(t.Context(), 1)
			if err != nil {
				wantErr(t, err, sema.ErrFull)
				break
			}
			all = append(all, p)
		}
		if int64(len(all)) != capacity {
			t.Errorf("%d permits of %d", len(all), capacity)
		}
		for _, p := range all {
			p.Release()
		}
	}
}

func TestStriped_ReleaseGoesToAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewStriped(2)
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		first := acquiring(t.Context(), s, 1)
		synctest.Wait()
		second := acquiring(t.Context(), s, 1)
		synctest.Wait()
		if st := s.Stats(); st.Waiters != 2 || st.InUse != 2 || st.Free != 0 {
			t.Fatalf("%+v", st)
		}
		a.Release()
		synctest.Wait()
		if !isDone(first) || isDone(second) {
			t.Fatal("the release must go to the head of the queue")
		}
		(<-first).permit.Release()
		(<-second).permit.Release()
		b.Release()
		if st := s.Stats(); st.Waiters != 0 || st.InUse != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestStriped_WaiterThatLeavesLosesNoPermit(t *testing.T) {
	s := sema.NewStriped(1)
	for range 2000 {
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquiring(ctx, s, 1)
		var racing sync.WaitGroup
		racing.Go(held.Release)
		racing.Go(cancel)
		racing.Wait()
		(<-waiting).permit.Release()
		mustAcquire(t, s, 1).Release()
	}
}

func TestStriped_RejectsInvalidRequests(t *testing.T) {
	s := sema.NewStriped(4)
	_, err := s.Acquire(t.Context(), 2)
	wantErr(t, err, sema.ErrTooLarge)
	_, err = s.Acquire(t.Context(), -1)
	wantErr(t, err, sema.ErrInvalid)
	p := mustAcquire(t, s, 0)
	p.Release()
	one := mustAcquire(t, s, 1)
	if one.Lease() != nil || one.Lost() != nil || one.Err() != nil || !one.Held() {
		t.Error("a permit of a Striped has a lease or can be lost")
	}
	_, _, err = one.Split(1)
	wantErr(t, err, sema.ErrInvalid)
	wantPanic(t, "Forget", func() { sema.New(1).Forget(one) })
	one.Release()
	wantPanic(t, "NewStriped(-1)", func() { sema.NewStriped(-1) })
	wantPanic(t, "Resize(-1)", func() { s.Resize(-1) })
	wantPanic(t, "zero Striped", func() { new(sema.Striped).TryAcquire(t.Context(), 2) })
	wantPanicText(t, "NewStriped", func() { new(sema.Striped).Acquire(t.Context(), 1) })
	wantPanicText(t, "NewStriped", func() { new(sema.Striped).TryAcquire(t.Context(), 1) })
	for _, method := range []func(s *sema.Striped){
		func(s *sema.Striped) { s.Resize(1) },
		func(s *sema.Striped) { s.Drain(t.Context()) },
		func(s *sema.Striped) { s.Resume() },
		func(s *sema.Striped) { s.WaitIdle(t.Context()) },
		func(s *sema.Striped) { s.Close() },
	} {
		wantPanicText(t, "NewStriped", func() { method(new(sema.Striped)) })
	}
}

// TestStriped_RacingReleasesWakeAllTheyCan races two releases into the same cell with two
// callers that are about to wait.
func TestStriped_RacingReleasesWakeAllTheyCan(t *testing.T) {
	s := sema.NewStriped(2)
	for range *stressOps / 20 {
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		x, y := acquiring(ctx, s, 1), acquiring(ctx, s, 1)
		go a.Release()
		b.Release()
		p, q := <-x, <-y // neither is released before both are granted
		cancel()
		if p.err != nil || q.err != nil {
			t.Fatalf("not woken although a permit is free: %v, %v", p.err, q.err)
		}
		p.permit.Release()
		q.permit.Release()
	}
}

func TestStriped_OptionsAndCounters(t *testing.T) {
	for name, more := range map[string][]sema.SharedOption{"plain": nil, "observed": {sema.Observe(new(journal))}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sema.NewStriped(2, append(more, sema.Name("hot"), sema.MaxWait(time.Second), sema.MaxWaiters(1))...)
				if s.Name() != "hot" || s.String() != `striped semaphore "hot": 0 of 2 in use, 0 waiting` {
					t.Errorf("%s, %v", s.Name(), s)
				}
				a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
				if a.String() != `permit of "hot": 1, held` || b.String() != a.String() {
					t.Errorf("%v, %v", a, b)
				}
				_, err := s.TryAcquire(t.Context(), 1)
				wantErr(t, err, sema.ErrFull)
				_, err = s.Acquire(t.Context(), 2)
				wantErr(t, err, sema.ErrTooLarge)
				waiting := acquiring(t.Context(), s, 1)
				synctest.Wait()
				_, err = s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrQueueFull)
				time.Sleep(time.Second / 2)
				a.Release()
				(<-waiting).permit.Release()
				a = mustAcquire(t, s, 1)
				_, err = s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrTimeout)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
				defer cancel()
				_, err = s.Acquire(ctx, 1)
				wantErr(t, err, context.DeadlineExceeded)
				a.Release()
				b.Release()
				want := sema.Stats{Capacity: 2, Free: 2, Counts: sema.Counts{
					Acquired: 4, Waited: 3, TimedOut: 1, Cancelled: 1, Rejected: 3, WaitTime: 1750 * time.Millisecond,
				}}
				if got := s.Stats(); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			})
		})
	}
}

func TestStriped_AcquiredCountsEveryPermit(t *testing.T) {
	s := sema.NewStriped(1000)
	var held []sema.Permit
	for range 1000 { // far more than there are cells
		held = append(held, mustAcquire(t, s, 1))
	}
	for _, p := range held {
		p.Release()
		mustAcquire(t, s, 1).Release()
	}
	if st := s.Stats(); st.Acquired != 2000 || st.InUse != 0 {
		t.Errorf("%+v", st)
	}
}

func TestStriped_IsObservedAndDiagnosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := sema.NewStriped(2, sema.Name("striped"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull), sema.WarnHold(time.Minute))
		a := mustAcquire(t, s, 1)
		if e := wantKinds(t, &j, sema.EventAcquired); e[0].Name != "striped" || e[0].Weight != 1 || e[0].Site == "" {
			t.Errorf("%+v", e[0])
		}
		b := mustAcquire(t, s, 1)
		wantKinds(t, &j, sema.EventAcquired, sema.EventExhausted)
		waiting := acquiring(t.Context(), s, 1)
		synctest.Wait()
		wantKinds(t, &j, sema.EventQueued)
		if text := profileText("sema.waiting"); !strings.Contains(text, "sema_test.acquiring") {
			t.Errorf("the wait is not in the profile:\n%s", text)
		}
		held := 0
		for _, h := range sema.Holders() {
			if h.Name == "striped" && h.Weight == 1 && strings.Contains(h.Stack, "TestStriped_IsObservedAndDiagnosed") {
				held++
			}
		}
		if held != 2 {
			t.Errorf("%d of 2 permits are among the holders", held)
		}
		time.Sleep(time.Minute + time.Second)
		if e := wantKinds(t, &j, sema.EventOverheld, sema.EventOverheld); !strings.Contains(e[0].Report, "TestStriped_IsObservedAndDiagnosed") {
			t.Errorf("%s", e[0].Report)
		}
		a.Release()
		a = (<-waiting).permit
		synctest.Wait()
		if got := kinds(j.take()); !slices.Contains(got, sema.EventReleased) || !slices.Contains(got, sema.EventAcquired) {
			t.Errorf("%v", got)
		}
		a.Release()
		b.Release()
		wantKinds(t, &j, sema.EventReleased, sema.EventRecovered, sema.EventReleased)
		if st := s.Stats(); st.InUse != 0 || st.Acquired != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestStriped_LeakIsReportedAndReclaimed(t *testing.T) {
	leaked, observe := leakReports()
	s := sema.NewStriped(1, sema.Name("striped leak"), sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks, observe.(sema.SharedOption))
	mustAcquire(t, s, 1) //semavet:ignore it is leaked on purpose
	if e := collectUntil(t, leaked); e.Name != "striped leak" || !strings.Contains(e.Report, "TestStriped_LeakIsReportedAndReclaimed") {
		t.Errorf("%+v", e)
	}
	mustAcquire(t, s, 1).Release()
}

func TestStriped_InversionWithASemaphoreIsReported(t *testing.T) {
	j, observe := reports(sema.EventInverted)
	full := sema.Diagnose(sema.DiagnoseFull)
	a, b := sema.NewStriped(1, sema.Name("striped a"), full, observe), sema.New(1, sema.Name("plain b"), full, observe)
	under := func(first, second sema.Gate) {
		p := mustAcquire(t, first, 1)
		defer p.Release()
		mustAcquire(t, second, 1).Release()
	}
	under(a, b)
	wantKinds(t, j)
	under(b, a)
	wantKinds(t, j, sema.EventInverted)
}

func TestStriped_DeadlockIsSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, observe := reports(sema.EventDeadlocked)
		full := sema.Diagnose(sema.DiagnoseFull)
		a, b := sema.NewStriped(1, sema.Name("stuck striped"), full, observe), sema.New(1, sema.Name("stuck plain"), full, observe)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var both sync.WaitGroup
		for _, order := range [][]sema.Gate{{a, b}, {b, a}} {
			both.Go(func() {
				p := mustAcquire(t, order[0], 1)
				defer p.Release()
				time.Sleep(time.Second)
				order[1].Acquire(ctx, 1)
			})
		}
		both.Wait()
		wantKinds(t, j, sema.EventDeadlocked)

		p := mustAcquire(t, a, 1)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a.Acquire(ctx, 1)
		if e := wantKinds(t, j, sema.EventDeadlocked); !strings.Contains(e[0].Report, "holds all 1 permits in use") {
			t.Errorf("%s", e[0].Report)
		}
		p.Release()
	})
}
