package sema_test

import (
	"context"
	"errors"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A journal is an observer that records events.
type journal struct {
	mu     sync.Mutex
	events []sema.Event
}

func (j *journal) Observe(e sema.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// take returns the events since the last take.
func (j *journal) take() []sema.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer func() { j.events = nil }()
	return j.events
}

func kinds(events []sema.Event) []sema.EventKind {
	var list []sema.EventKind
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return list
}

func wantKinds(t *testing.T, j *journal, want ...sema.EventKind) []sema.Event {
	t.Helper()
	events := j.take()
	if got := kinds(events); !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	return events
}

func TestObserver_ReceivesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := sema.New(2, sema.Name("db"), sema.Observe(&j), sema.MaxWait(5*time.Second), sema.CallSites)

		a := mustAcquire(t, s, 2)
		e := wantKinds(t, &j, sema.EventAcquired, sema.EventExhausted)
		if e[0].Name != "db" || e[0].Weight != 2 || !strings.Contains(e[0].Site, "helpers_test.go:") {
			t.Errorf("%+v", e[0])
		}
		next := acquiring(t.Context(), s, 1)
		synctest.Wait()
		e = wantKinds(t, &j, sema.EventQueued)
		if e[0].Waiters != 1 || e[0].Weight != 1 {
			t.Errorf("%+v", e[0])
		}
		time.Sleep(2 * time.Second)
		a.Release()
		a.Release()
		synctest.Wait()
		for _, e := range j.take() {
			switch e.Kind {
			case sema.EventReleased:
				if e.Hold != 2*time.Second || e.Weight != 2 {
					t.Errorf("%+v", e)
				}
			case sema.EventAcquired:
				if e.Wait != 2*time.Second || e.Weight != 1 {
					t.Errorf("%+v", e)
				}
			case sema.EventRecovered:
			default:
				t.Errorf("unexpected %+v", e)
			}
		}
		(<-next).permit.Release()
		j.take()

		_, err := s.Acquire(t.Context(), 3)
		e = wantKinds(t, &j, sema.EventRejected)
		if e[0].Err != err || !errors.Is(err, sema.ErrTooLarge) {
			t.Errorf("%+v", e[0])
		}
		s.Acquire(t.Context(), -1)
		wantKinds(t, &j, sema.EventRejected)

		b := mustAcquire(t, s, 2)
		_, err = s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		wantKinds(t, &j, sema.EventAcquired, sema.EventExhausted, sema.EventRejected)
		s.Acquire(t.Context(), 1)
		e = wantKinds(t, &j, sema.EventQueued, sema.EventTimedOut)
		if e[1].Wait != 5*time.Second {
			t.Errorf("%+v", e[1])
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Acquire(ctx, 1)
		wantKinds(t, &j, sema.EventQueued, sema.EventCancelled)

		s.Resize(3)
		e = wantKinds(t, &j, sema.EventResized, sema.EventRecovered)
		if e[0].Capacity != 3 {
			t.Errorf("%+v", e[0])
		}
		s.Forget(b)
		e = wantKinds(t, &j, sema.EventResized)
		if e[0].Capacity != 1 {
			t.Errorf("%+v", e[0])
		}
		s.Drain(t.Context())
		s.Close()
		s.Close()
		wantKinds(t, &j, sema.EventDrained, sema.EventClosed)
	})
}

func TestObserver_ReceivesEventsOfTicketsAndAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j, k journal
		a, b := sema.New(2, sema.Observe(&j)), sema.New(2, sema.Observe(&k))
		p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, nil)
		wantKinds(t, &j, sema.EventAcquired)
		wantKinds(t, &k, sema.EventAcquired)
		p.Release()
		wantKinds(t, &j, sema.EventReleased)
		wantKinds(t, &k, sema.EventReleased)

		b.Close()
		k.take()
		_, err = sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, sema.ErrClosed)
		wantKinds(t, &j, sema.EventRejected)
		wantKinds(t, &k, sema.EventRejected)

		held := mustAcquire(t, a, 2)
		ticket := a.Request(1)
		synctest.Wait()
		wantKinds(t, &j, sema.EventAcquired, sema.EventExhausted, sema.EventQueued)
		time.Sleep(time.Second)
		ticket.Cancel()
		if e := wantKinds(t, &j, sema.EventCancelled); e[0].Wait != time.Second {
			t.Errorf("%+v", e[0])
		}
		held.Release()
	})
}

func TestObserver_ExhaustionIsReportedOncePerTransition(t *testing.T) {
	var j journal
	s := sema.New(2, sema.Observe(&j))
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 20_000 / raceFactor {
				mustAcquire(t, s, 1).Release()
			}
		})
	}
	working.Wait()
	exhausted, recovered := 0, 0
	for _, e := range j.take() {
		switch e.Kind {
		case sema.EventExhausted:
			exhausted++
		case sema.EventRecovered:
			recovered++
		}
	}
	if exhausted != recovered {
		t.Errorf("%d times exhausted, %d times recovered, although all permits are free", exhausted, recovered)
	}
}

func TestObserver_PanicLosesNoPermit(t *testing.T) {
	for _, at := range []sema.EventKind{sema.EventQueued, sema.EventAcquired, sema.EventReleased} {
		for _, level := range []sema.DiagnoseLevel{sema.DiagnoseOff, sema.DiagnoseFull} {
			armed := false
			s := sema.New(1, sema.Diagnose(level), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if armed && e.Kind == at {
					armed = false
					panic("observer")
				}
			})))
			other := sema.New(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {})))
			try := func(acquire func() (sema.Permit, error)) {
				var p sema.Permit
				func() {
					defer func() { recover() }()
					p, _ = acquire()
					p.Release()
				}()
				p.Release()
			}
			if at == sema.EventQueued {
				held := mustAcquire(t, s, 1)
				armed = true
				try(func() (sema.Permit, error) { return s.Acquire(t.Context(), 1) })
				wantStats(t, s, 1, 0)
				armed = true
				try(func() (sema.Permit, error) { return s.Request(1).Permit() })
				wantStats(t, s, 1, 0)
				held.Release()
				wantStats(t, s, 0, 0)
				continue
			}
			armed = true
			try(func() (sema.Permit, error) { return s.Acquire(t.Context(), 1) })
			wantStats(t, s, 0, 0)
			armed = true
			try(func() (sema.Permit, error) { return s.Request(1).Permit() })
			wantStats(t, s, 0, 0)
			armed = true
			try(func() (sema.Permit, error) {
				return sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: 1}, sema.Want{Gate: other, N: 1})
			})
			wantStats(t, s, 0, 0)
			if at == sema.EventAcquired {
				wantStats(t, other, 0, 0)
			}
		}
	}
}

func TestObserver_PanicAtATicketLeavesNoWaiterAsleep(t *testing.T) {
	var armed atomic.Bool
	s := sema.New(4, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if armed.Load() && e.Kind == sema.EventAcquired {
			panic("observer")
		}
	})))
	held := mustAcquire(t, s, 4)
	tickets := []*sema.Ticket{s.Request(1), s.Request(1)}
	waiting := make(chan error, 1)
	go func() {
		defer func() { recover(); waiting <- nil }()
		s.Acquire(context.Background(), 1)
	}()
	waitersReach(t, 3, func() int { return s.Stats().Waiters })
	armed.Store(true)
	wantPanic(t, "Release", held.Release)
	<-waiting
	for _, ticket := range tickets {
		<-ticket.Ready()
		if _, err := ticket.Permit(); err == nil {
			t.Error("a permit although the observer panicked")
		}
	}
	wantStats(t, s, 0, 0)
}

func TestObserver_SlowObserverDelaysNoOtherCaller(t *testing.T) {
	for name, order := range map[string]sema.Option{"Fair": sema.Fair, "Unfair": sema.Unfair} {
		synctest.Test(t, func(t *testing.T) {
			proceed := make(chan struct{})
			var slow atomic.Bool
			s := sema.New(2, order, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if e.Kind == sema.EventQueued {
					if slow.CompareAndSwap(false, true) {
						<-proceed
					}
				}
			})))
			a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
			ctx, cancel := context.WithCancel(t.Context())
			var waits []<-chan result
			for range 20 {
				waits = append(waits, acquiring(ctx, s, 1))
				synctest.Wait()
			}
			a.Release()
			b.Release()
			synctest.Wait()
			if !isDone(waits[1]) || !isDone(waits[2]) {
				t.Fatalf("%s: waiters were delayed by a slow observer", name)
			}
			cancel()
			synctest.Wait()
			for i, w := range waits[1:] {
				if !isDone(w) {
					t.Fatalf("%s: waiter %d was not notified that its context ended", name, i+1)
				}
				(<-w).permit.Release()
			}
			close(proceed)
			wantErr(t, (<-waits[0]).err, context.Canceled)
			wantStats(t, s, 0, 0)
		})
	}
}

func TestObserver_MayCancelTheTicketOfAnEvent(t *testing.T) {
	var ticket *sema.Ticket
	s := sema.New(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if ticket != nil && e.Kind == sema.EventAcquired {
			ticket.Cancel()
		}
	})))
	held := mustAcquire(t, s, 1)
	ticket = s.Request(1)
	held.Release() // must not deadlock
	<-ticket.Ready()
	_, err := ticket.Permit()
	wantErr(t, err, context.Canceled)
	wantStats(t, s, 0, 0)
}

func TestDiagnose_WaitsOfTicketsAndAcquireAllAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		a, b := sema.New(1, sema.Diagnose(sema.DiagnoseFull), sema.Observe(&j)), sema.New(1)
		held := mustAcquire(t, a, 1)
		wantKinds(t, &j, sema.EventAcquired, sema.EventExhausted)
		before := pprof.Lookup("sema.waiting").Count()
		ctx, cancel := context.WithCancel(t.Context())
		go sema.AcquireAll(ctx, sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		synctest.Wait()
		wantKinds(t, &j, sema.EventQueued)
		ticket := a.Request(1)
		if e := wantKinds(t, &j, sema.EventQueued); e[0].Waiters != 2 {
			t.Errorf("%d waiters", e[0].Waiters)
		}
		if n := pprof.Lookup("sema.waiting").Count() - before; n != 2 {
			t.Errorf("%d in the profile of waits, want 2", n)
		}
		cancel()
		ticket.Cancel()
		synctest.Wait()
		j.take()
		if n := pprof.Lookup("sema.waiting").Count() - before; n != 0 {
			t.Errorf("%d still in the profile", n)
		}
		held.Release()
	})
}

func TestObserver_ParkedCallersCountAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := sema.New(1, sema.ParkOversize, sema.Observe(&j))
		ctx, cancel := context.WithCancel(t.Context())
		go s.Acquire(ctx, 2)
		synctest.Wait()
		if e := j.take(); e[0].Kind != sema.EventQueued || e[0].Waiters != 1 {
			t.Errorf("%+v", e)
		}
		wantStats(t, s, 0, 1)
		cancel()
	})
}

func TestObserver_FailedAcquireAllLeavesNoGateExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		a, b := sema.New(1, sema.Observe(&j)), sema.New(1)
		held := mustAcquire(t, b, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := sema.AcquireAll(ctx, sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, context.DeadlineExceeded)
		wantKinds(t, &j, sema.EventQueued, sema.EventExhausted, sema.EventCancelled, sema.EventRecovered)
		held.Release()
	})
}
