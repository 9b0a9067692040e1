package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestASubscriptionThatLastedIsTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hardOfHearing{Store: memstore.New(), err: errCut}
		join(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		h.lasts = time.Minute
		h.calls = nil
		h.mu.Unlock()
		time.Sleep(10 * time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range h.calls[1:] {
			if gap := h.calls[i+1].Sub(h.calls[i]) - time.Minute; gap > 10*time.Millisecond {
				t.Errorf("tried again after %v, want the first pause", gap)
			}
		}
		h.lasts = 0
	})
}

func TestAnEngineWithoutHintsIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hardOfHearing{Store: memstore.New(), err: fmt.Errorf("hints: %w", errors.ErrUnsupported)}
		join(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.calls); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
	})
}

func TestFaultsTellTheCapacityBeforeTheEngineDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		line.cut.Store(true)
		_, err := semaphore(t, c, of(7)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if fault := faultOf(t, err); fault.Capacity != 7 {
			t.Errorf("%v: the capacity is %d", err, fault.Capacity)
		}
	})
}

func TestARefusalIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, otherVersion{memstore.New()})
		s := semaphore(t, c, of(5))
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, protocol.ErrVersion)
		time.Sleep(time.Second)
		if n := s.Stats().Failures; n != 0 {
			t.Errorf("%d failures of an engine that answers", n)
		}
	})
}

func TestALostMessageLeavesTimeToSayItAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: 150 * time.Millisecond}
		c, _ := join(t, w)
		p := mustAcquire(t, semaphore(t, c, of(1, fleet.TTL(3*time.Second))), 1)
		for range 100 {
			w.lose.Store(1)
			time.Sleep(3 * time.Second)
			if w.lose.Load() > 0 {
				t.Fatal("nothing was lost")
			}
			wantErr(t, p.Err(), nil)
		}
	})
}

func TestTheLastExchangesHaveTimeForAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: 700 * time.Millisecond}
		c, _ := join(t, w)
		p := mustAcquire(t, semaphore(t, c, of(1, fleet.TTL(15*time.Second))), 1)
		l, _ := fleet.LeaseOf(p)
		w.dead.Store(true)
		time.Sleep(l.Left - 1800*time.Millisecond) // a third of what is left is too short for an answer
		w.dead.Store(false)
		time.Sleep(3 * time.Second)
		wantErr(t, p.Err(), nil)
		p.Release()
	})
}

func TestWhatIsTrustedBrieflyIsLostInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), valid: 50_000}
		c, _ := join(t, w)
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		w.dead.Store(true)
		start := time.Now()
		<-p.Lost()
		if took := time.Since(start); took > 51*time.Millisecond {
			t.Errorf("told after %v, and it was trusted for 50 ms", took)
		}
	})
}

func TestASessionIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(1))
		for range 20 {
			mustAcquire(t, s, 1).Release()
			time.Sleep(50 * time.Second)
		}
		if n := s.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions for who comes every 50 s", n)
		}
	})
}

func TestASessionThatWasOverWhenItBeganIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		line.delay = 200 * time.Millisecond
		s := semaphore(t, c, of(1, fleet.TTL(200*time.Millisecond), sema.MaxWait(10*time.Second)))
		s.Acquire(t.Context(), 1)
		if stats := s.Stats(); stats.Sessions != 0 || stats.SessionsLost != 0 || stats.Failures == 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestWhoStandsInLineAnewDoesSoInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := join(t, store)
		b, line := join(t, store)
		p := mustAcquire(t, semaphore(t, a, of(1)), 1)
		s := semaphore(t, b, of(1, sema.MaxWait(time.Hour)))
		served := make(chan int, 10)
		for i := range 10 {
			go func() {
				q := mustAcquire(t, s, 1)
				served <- i
				q.Release()
			}()
			synctest.Wait()
		}
		line.cut.Store(true)
		time.Sleep(time.Minute) // the session is lost
		line.cut.Store(false)
		time.Sleep(time.Minute)
		p.Release()
		for want := range 10 {
			if got := <-served; got != want {
				t.Fatalf("%d was served, want %d", got, want)
			}
		}
	})
}

func TestRenewalsAreToldWhileSomethingIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(&d)))
		p := mustAcquire(t, s, 1)
		time.Sleep(30 * time.Second)
		p.Release()
		synctest.Wait()
		told := d.count(sema.EventRenewed)
		if told < 6 || told > 8 {
			t.Errorf("told %d times in 30 s", told)
		}
		time.Sleep(30 * time.Second)
		if more := d.count(sema.EventRenewed); more > told {
			t.Errorf("told %d times that nothing was renewed", more-told)
		}
	})
}

func TestWhatIsOfARateIsNeitherHeldNorLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(4, fleet.Rate(time.Hour), sema.Observe(&d)))
		p := mustAcquire(t, s, 1)
		if held := s.Stats().Held; held != 0 {
			t.Errorf("%d are held", held)
		}
		line.cut.Store(true)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		select {
		case <-p.Lost():
			t.Error("it is lost")
		default:
		}
		p.Release()
		if stats := s.Stats(); stats.Releases != 0 || stats.SessionsLost != 1 || d.count(sema.EventLost) != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestAPermitOfASleeperIsLostByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, _ := join(t, memstore.New())
		c.UseSleepyClock(func() time.Duration { return time.Duration(slept.Load()) })
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		slept.Store(int64(10 * time.Second)) // its timers have not noticed
		wantErr(t, p.Err(), sema.ErrLost)
		if l, _ := fleet.LeaseOf(p); l.Left != 0 {
			t.Errorf("%v are left", l.Left)
		}
		p.Release()
		wantErr(t, p.Err(), sema.ErrLost)
	})
}

func TestARevokedPermitTellsByWhomAndWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		l, _ := fleet.LeaseOf(p)
		wantErr(t, c.Revoke(t.Context(), "db", fleet.Revocation{Lease: l.ID, By: "ops", Why: "stuck"}), nil)
		<-p.Lost()
		wantErr(t, p.Err(), sema.ErrLost)
		if !strings.Contains(p.Err().Error(), "revoked by ops: stuck") {
			t.Error(p.Err())
		}
		if l, ok := fleet.LeaseOf(p); !ok || l.Left != 0 {
			t.Errorf("%v are left of what was taken away", l.Left)
		}
		if l, _ := fleet.LeaseOf(q); l.Left == 0 {
			t.Error("nothing is left of what was not")
		}
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrLost)
		wantErr(t, fleet.Release(t.Context(), q), nil)
	})
}

func TestAReleaseThatComesTooLateSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		looks.Store(-1 << 40)
		c, _ := join(t, memstore.New())
		c.UseSleepyClock(func() time.Duration {
			if looks.Add(1) > 1 { // the machine sleeps after the first look
				return time.Hour
			}
			return 0
		})
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait()
		looks.Store(0)
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrLost)
	})
}

func TestWhatTheEngineForgotIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		wantErr(t, c.Delete(t.Context(), "db"), nil)
		wantErr(t, fleet.Release(t.Context(), p), nil)
	})
}

func TestAnObserverThatLagsIsToldOfWhatMatters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		block := make(chan struct{})
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(2, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if d.Observe(e); e.Kind == sema.EventRenewed {
				<-block
			}
		}))))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		time.Sleep(time.Minute)
		l, _ := fleet.LeaseOf(p)
		wantErr(t, c.Revoke(t.Context(), "db", fleet.Revocation{Lease: l.ID}), nil)
		<-p.Lost()
		time.Sleep(3 * time.Hour) // of signs of life
		close(block)
		synctest.Wait()
		if lost, renewed := d.count(sema.EventLost), d.count(sema.EventRenewed); lost != 1 || renewed > 1001 {
			t.Errorf("told of %d losses and %d renewals", lost, renewed)
		}
		q.Release()
	})
}
