package fleet_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestLease_HolderIsNotifiedBeforeOthersAreGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		holder, conn := newClient(t, store)
		other, _ := newClient(t, store)
		o := of(1, fleet.TTL(15*time.Second))
		p := mustAcquire(t, semaphore(t, holder, o), 1)
		start := time.Now()
		conn.cut.Store(true)
		granted := make(chan time.Duration, 1)
		go func() {
			q := mustAcquire(t, semaphore(t, other, o), 1)
			granted <- time.Since(start)
			q.Release()
		}()
		<-p.Lost()
		lost := time.Since(start)
		wantErr(t, p.Err(), sema.ErrLost)
		if lost > 10*time.Second+time.Millisecond { // timers have microseconds at best
			t.Errorf("notified after %v", lost)
		}
		if got := <-granted; got < lost || got > 20*time.Second {
			t.Errorf("lost after %v, granted to another client after %v", lost, got)
		}
		conn.cut.Store(false)
		mustAcquire(t, semaphore(t, holder, o), 1).Release() // a new session
	})
}

func TestLease_IsLostByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1, fleet.TTL(15*time.Second))), 1)
		if l, ok := fleet.LeaseOf(p); !ok || l.Left != 10*time.Second || l.Fence.Seq == 0 {
			t.Errorf("%+v %v", l, ok)
		}
		conn.cut.Store(true)
		time.Sleep(10*time.Second - 1)
		wantErr(t, p.Err(), nil)
		time.Sleep(5 * time.Second)
		wantErr(t, p.Err(), sema.ErrLost)
		if l, _ := fleet.LeaseOf(p); l.Left != 0 {
			t.Errorf("%v left", l.Left)
		}
		p.Release() // no effect
	})
}

func TestLease_RevokedPermitIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		l, _ := fleet.LeaseOf(p)
		wantErr(t, store.Administer(context.Background(), "db", fleet.Command{Revoke: &fleet.Revocation{Lease: l.Fence.Seq}}), nil)
		<-p.Lost()
		wantErr(t, p.Err(), sema.ErrLost)
		synctest.Wait()
		if used, _ := inUse(t, store); used != 0 {
			t.Errorf("%d in use", used)
		}
	})
}

func TestRelease_IsConfirmedUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = time.Millisecond
		s := semaphore(t, c, of(100))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 { // there is always something to send
			go func() {
				for ctx.Err() == nil {
					mustAcquire(t, s, 1).Release()
				}
			}()
		}
		time.Sleep(time.Second)
		start := time.Now()
		wantErr(t, fleet.Release(t.Context(), p), nil)
		if took := time.Since(start); took > 5*time.Millisecond {
			t.Errorf("the confirmation took %v", took)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

func TestRelease_FailsWithoutAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		conn.cut.Store(true)
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrUnavailable)
		wantErr(t, p.Err(), nil) // not lost before the release
		wantErr(t, fleet.Release(t.Context(), q), sema.ErrLost)
		if n := s.Stats().Unconfirmed; n != 1 {
			t.Errorf("%d releases are unconfirmed", n)
		}
	})
}

func TestLease_ReleasedPermitIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(2))
		p := mustAcquire(t, s, 2)
		a, b, err := p.Split(1)
		wantErr(t, err, nil)
		a.Release()
		if l, ok := fleet.LeaseOf(a); !ok || l.Left != 0 {
			t.Errorf("lease %+v of a released permit has time left", l)
		}
		if l, _ := fleet.LeaseOf(b); l.Left == 0 {
			t.Error("the lease of a held permit has no time left")
		}
		conn.cut.Store(true)
		<-b.Lost()
		wantErr(t, b.Err(), sema.ErrLost)
		wantErr(t, a.Err(), nil)
		b.Release()
		wantErr(t, b.Err(), sema.ErrLost) // lost before the release
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

func TestRelease_WaitsForOneReply(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, conn := newClient(t, store)
			conn.delay = rtt
			s := semaphore(t, c, of(3, mode))
			p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
			time.Sleep(time.Second)
			start := time.Now()
			wantErr(t, fleet.Release(t.Context(), p), nil)
			if took := time.Since(start); took > rtt {
				t.Errorf("it took %v", took)
			}
			if mode == fleet.ModePooled {
				return
			}
			go s.Acquire(t.Context(), 1) // a batch is in flight
			time.Sleep(rtt / 2)
			start = time.Now()
			wantErr(t, fleet.Release(t.Context(), q), nil)
			if used, _ := inUse(t, store); used != 1 || time.Since(start) != rtt+rtt/2 {
				t.Errorf("%d in use after %v", used, time.Since(start))
			}
		})
	}
}
