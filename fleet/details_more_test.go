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

func TestClient_LongSubscriptionIsRetriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: errCut}
		newClient(t, h)
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
				t.Errorf("retried after %v, want at most the first pause", gap)
			}
		}
		h.lasts = 0
	})
}

func TestClient_UnsupportedListenIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: fmt.Errorf("listen: %w", errors.ErrUnsupported)}
		newClient(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.calls); n != 1 {
			t.Errorf("%d subscriptions, want 1", n)
		}
	})
}

func TestSemaphore_ErrorContainsTheRequestedCapacityBeforeAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.cut.Store(true)
		_, err := semaphore(t, c, of(7)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if fault := faultOf(t, err); fault.Capacity != 7 {
			t.Errorf("%v: capacity %d, want 7", err, fault.Capacity)
		}
	})
}

func TestStats_RejectionIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, otherVersion{memstore.New()})
		s := semaphore(t, c, of(5))
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, protocol.ErrVersion)
		time.Sleep(time.Second)
		if n := s.Stats().Failures; n != 0 {
			t.Errorf("%d failures although the store replied", n)
		}
	})
}

func TestSession_LostHeartbeatIsSentAgainInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: 150 * time.Millisecond}
		c, _ := newClient(t, w)
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

func TestSession_LastExchangesWaitForAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: 700 * time.Millisecond}
		c, _ := newClient(t, w)
		p := mustAcquire(t, semaphore(t, c, of(1, fleet.TTL(15*time.Second))), 1)
		l, _ := fleet.LeaseOf(p)
		w.cut.Store(true)
		time.Sleep(l.Left - 1800*time.Millisecond) // a third of the remaining time is too short for a reply
		w.cut.Store(false)
		time.Sleep(3 * time.Second)
		wantErr(t, p.Err(), nil)
		p.Release()
	})
}

func TestSession_BrieflyValidPermitIsLostInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), valid: 50_000}
		c, _ := newClient(t, w)
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		w.cut.Store(true)
		start := time.Now()
		<-p.Lost()
		if took := time.Since(start); took > 51*time.Millisecond {
			t.Errorf("notified after %v, the permit was valid for 50 ms", took)
		}
	})
}

func TestSession_IsKeptForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1))
		for range 20 {
			mustAcquire(t, s, 1).Release()
			time.Sleep(50 * time.Second)
		}
		if n := s.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions for one acquire every 50 s, want 1", n)
		}
	})
}

func TestSession_ExpiredWhenOpenedDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = 200 * time.Millisecond
		s := semaphore(t, c, of(1, fleet.TTL(200*time.Millisecond), sema.MaxWait(10*time.Second)))
		s.Acquire(t.Context(), 1)
		if stats := s.Stats(); stats.Sessions != 0 || stats.SessionsLost != 0 || stats.Failures == 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestSession_WaitersAreQueuedAgainInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, conn := newClient(t, store)
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
		conn.cut.Store(true)
		time.Sleep(time.Minute) // the session is lost
		conn.cut.Store(false)
		time.Sleep(time.Minute)
		p.Release()
		for want := range 10 {
			if got := <-served; got != want {
				t.Fatalf("caller %d was served, want %d", got, want)
			}
		}
	})
}

func TestSemaphore_RenewalsAreReportedWhilePermitsAreHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(&d)))
		p := mustAcquire(t, s, 1)
		time.Sleep(30 * time.Second)
		p.Release()
		synctest.Wait()
		reported := d.count(sema.EventRenewed)
		if reported < 6 || reported > 8 {
			t.Errorf("%d renewals were reported in 30 s", reported)
		}
		time.Sleep(30 * time.Second)
		if more := d.count(sema.EventRenewed); more > reported {
			t.Errorf("%d renewals were reported while nothing was held", more-reported)
		}
	})
}

func TestRate_PermitsAreNeitherHeldNorLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(4, fleet.Rate(time.Hour), sema.Observe(&d)))
		p := mustAcquire(t, s, 1)
		if held := s.Stats().Held; held != 0 {
			t.Errorf("%d permits are held, want 0", held)
		}
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		select {
		case <-p.Lost():
			t.Error("a permit of a rate is lost")
		default:
		}
		p.Release()
		if stats := s.Stats(); stats.Releases != 0 || stats.SessionsLost != 1 || d.count(sema.EventLost) != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestLease_IsLostByTheClockAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, _ := newClient(t, memstore.New())
		c.UseSuspendableClock(func() time.Duration { return time.Duration(slept.Load()) })
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		slept.Store(int64(10 * time.Second)) // timers have not fired
		wantErr(t, p.Err(), sema.ErrLost)
		if l, _ := fleet.LeaseOf(p); l.Left != 0 {
			t.Errorf("left %v, want 0", l.Left)
		}
		p.Release()
		wantErr(t, p.Err(), sema.ErrLost)
	})
}

func TestLease_RevocationContainsOperatorAndReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
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
			t.Errorf("left %v for a revoked permit, want 0", l.Left)
		}
		if l, _ := fleet.LeaseOf(q); l.Left == 0 {
			t.Error("left 0 for a permit that was not revoked")
		}
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrLost)
		wantErr(t, fleet.Release(t.Context(), q), nil)
	})
}

func TestRelease_FailsAfterTheSessionHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		reads.Store(-1 << 40)
		c, _ := newClient(t, memstore.New())
		c.UseSuspendableClock(func() time.Duration {
			if reads.Add(1) > 1 { // the machine is suspended after the first read
				return time.Hour
			}
			return 0
		})
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait()
		reads.Store(0)
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrLost)
	})
}

func TestRelease_SucceedsForADeletedSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		wantErr(t, c.Delete(t.Context(), "db"), nil)
		wantErr(t, fleet.Release(t.Context(), p), nil)
	})
}

func TestOutbox_SlowObserverMissesRenewalsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		block := make(chan struct{})
		c, _ := newClient(t, memstore.New())
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
		time.Sleep(3 * time.Hour) // of heartbeats
		close(block)
		synctest.Wait()
		if lost, renewed := d.count(sema.EventLost), d.count(sema.EventRenewed); lost != 1 || renewed > 1001 {
			t.Errorf("%d losses and %d renewals were reported", lost, renewed)
		}
		q.Release()
	})
}
