package sema_test

import (
	"context"
	"math"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// Each test covers a trap that the design lists as a requirement.

var packageLevel = sema.New(1, sema.MaxWait(time.Minute))

// exercise makes callers of a semaphore wait, time out, be cancelled and be granted.
func exercise(t *testing.T, s *sema.Semaphore, waiting func()) {
	held := mustAcquire(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
	defer cancel()
	_, err := s.Acquire(ctx, 1)
	wantErr(t, err, context.DeadlineExceeded)
	next := acquiring(t.Context(), s, 1)
	waiting()
	held.Release()
	r := <-next
	wantErr(t, r.err, nil)
	r.permit.Release()
	ticket := s.Request(1)
	<-ticket.Ready()
	ticket.Cancel()
}

func TestTrap_PackageLevelSemaphoreWorksInBubblesAndOutside(t *testing.T) {
	outside := func() { waitersReach(t, 1, func() int { return packageLevel.Stats().Waiters }) }
	inside := func(t *testing.T) {
		began := time.Now()
		exercise(t, packageLevel, synctest.Wait)
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("took %v of the bubble's time", took)
		}
		// MaxWait must run on the bubble's clock.
		held := mustAcquire(t, packageLevel, 1)
		began = time.Now()
		_, err := packageLevel.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("MaxWait took %v", took)
		}
		held.Release()
	}
	exercise(t, packageLevel, outside) // fills the pools with channels from outside
	synctest.Test(t, inside)
	synctest.Test(t, inside)
	exercise(t, packageLevel, outside)
	synctest.Test(t, inside)
	wantStats(t, packageLevel, 0, 0)
}

func TestTrap_BubbleThatRanForDecadesIsStillABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(40 * 365 * 24 * time.Hour)
		exercise(t, packageLevel, synctest.Wait)
	})
	exercise(t, packageLevel, func() { waitersReach(t, 1, func() int { return packageLevel.Stats().Waiters }) })
}

// TestSemaphore_NoPermitIsLostWhenCancelRacesGrant covers the trap that a waiter that is
// granted and then cancelled must consume its token before it pools its channel. A token
// left in a pooled channel would admit its next user beyond the capacity.

func TestTrap_StaleCopyOfAReusedPermitIsInert(t *testing.T) {
	s := sema.New(1)
	stale := mustAcquire(t, s, 1)
	stale.Release()
	for range 1000 { // the handle is reused each time
		fresh := mustAcquire(t, s, 1)
		stale.Release()
		if stale.Held() || !fresh.Held() {
			t.Fatal("an old copy released a new permit")
		}
		if _, _, err := stale.Split(1); err == nil {
			t.Fatal("an old copy was split")
		}
		s.Forget(stale)
		wantStats(t, s, 1, 0)
		fresh.Release()
	}
}

func TestTrap_TicketAndLostChannelsAreNotReused(t *testing.T) {
	s := sema.New(1)
	a := s.Request(1)
	ready := a.Ready()
	<-ready
	a.Cancel()
	b := s.Request(1)
	if b.Ready() == ready {
		t.Fatal("a ticket's channel was reused")
	}
	b.Cancel()
}

func TestTrap_ProfilesDoNotKeepALeakedPermitAlive(t *testing.T) {
	leaked, observe := leakReports()
	s := sema.New(1, sema.Name("leaky"), sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks, observe)
	leak(t, s)
	if n := pprof.Lookup("sema.held").Count(); n == 0 {
		t.Fatal("the permit is not in the profile")
	}
	e := collectUntil(t, leaked)
	if !strings.Contains(e.Report, "traps_test.go") || !strings.Contains(e.Report, "leak") {
		t.Errorf("the report does not name the acquire:\n%s", e.Report)
	}
	mustAcquire(t, s, 1).Release() // the weight was reclaimed
}

// leakReports returns the channel to which semaphores with the option report leaks.
func leakReports() (<-chan sema.Event, sema.Option) {
	leaked := make(chan sema.Event, 1)
	return leaked, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventLeaked {
			leaked <- e
		}
	}))
}

//go:noinline
func leak(t *testing.T, s *sema.Semaphore) { mustAcquire(t, s, 1) }

// collectUntil runs the garbage collector until an event arrives, and returns the event.
func collectUntil(t *testing.T, c <-chan sema.Event) sema.Event {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		runtime.GC()
		select {
		case e := <-c:
			return e
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("no leak was reported")
	panic("unreachable")
}

func TestTrap_CapacityBeyondTheWordIsUnlimited(t *testing.T) {
	s := sema.New(math.MaxInt64)
	if c := s.Stats().Capacity; c != 1<<61-1 {
		t.Fatalf("capacity %d", c)
	}
	all := mustAcquire(t, s, sema.MaxCapacity)
	_, err := s.TryAcquire(t.Context(), 1)
	wantErr(t, err, sema.ErrFull)
	_, err = s.Acquire(t.Context(), math.MaxInt64)
	wantErr(t, err, sema.ErrTooLarge)
	s.Resize(0) // the largest possible debt
	if st := s.Stats(); st.Debt != sema.MaxCapacity || st.InUse != sema.MaxCapacity {
		t.Fatalf("%+v", st)
	}
	s.Resize(math.MaxInt64)
	all.Release()
	if st := s.Stats(); st.Free != sema.MaxCapacity || st.InUse != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestTrap_DeadlockIsOnlySuspectedWhenEveryHolderIsBlocked(t *testing.T) {
	reports := make(chan sema.Event, 10)
	observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventDeadlocked {
			reports <- e
		}
	}))
	a := sema.New(2, sema.Name("a"), sema.Diagnose(sema.DiagnoseFull), observe)
	b := sema.New(1, sema.Name("b"), sema.Diagnose(sema.DiagnoseFull), observe)
	free := mustAcquire(t, a, 1) // this goroutine holds one of a and never waits
	ctx, cancel := context.WithCancel(t.Context())
	inA, inB := make(chan struct{}), make(chan struct{})
	x := make(chan result, 1)
	go func() { // holds a, waits for b
		p := mustAcquire(t, a, 1)
		close(inA)
		<-inB
		q, err := b.Acquire(ctx, 1)
		p.Release()
		x <- result{q, err}
	}()
	y := make(chan result, 1)
	go func() { // holds b, waits for a
		p := mustAcquire(t, b, 1)
		close(inB)
		<-inA
		q, err := a.Acquire(ctx, 1)
		p.Release()
		y <- result{q, err}
	}()
	waitersReach(t, 2, func() int { return a.Stats().Waiters + b.Stats().Waiters })
	select {
	case e := <-reports:
		t.Fatalf("suspected although a holder can proceed:\n%s", e.Report)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	(<-x).permit.Release()
	(<-y).permit.Release()
	free.Release()
}
