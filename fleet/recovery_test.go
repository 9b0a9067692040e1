package fleet_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// failedOpen returns a semaphore whose store is unreachable, and whose only local permit is
// held.
func failedOpen(t *testing.T, opts ...fleet.Option) (*fleet.Client, *fleet.Semaphore, *link, sema.Permit) {
	t.Helper()
	c, l := newClient(t, memstore.New())
	s := semaphore(t, c, of(10, fleet.TTL(3*time.Second), sema.MaxWait(time.Hour), fleet.FailOpen(1)).with(opts...))
	mustAcquire(t, s, 1).Release()
	l.cut.Store(true)
	time.Sleep(10 * time.Second) // until a pool has lost its blocks
	p := mustAcquire(t, s, 1)
	if !s.Stats().FailedOpen {
		t.Fatal("the semaphore has not failed open")
	}
	return c, s, l, p
}

func TestFailOpen_WaitersContinueAtTheStoreAfterRecovery(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			_, s, l, p := failedOpen(t, mode)
			got := make(chan sema.Permit, 1)
			go func() { got <- mustAcquire(t, s, 1) }()
			time.Sleep(time.Second)
			l.cut.Store(false)
			select {
			case q := <-got:
				q.Release()
			case <-time.After(time.Minute):
				t.Errorf("the caller waits although 10 permits are free: %+v", s.Stats())
			}
			p.Release()
			synctest.Wait()
		})
	}
}

func TestFailOpen_DrainRejectsWaitersOfTheLocalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s, l, p := failedOpen(t)
		failed := make(chan error, 1)
		acquire := func() { _, err := s.Acquire(t.Context(), 1); failed <- err }
		go acquire()
		time.Sleep(time.Second)
		l.cut.Store(false)
		wantErr(t, c.Drain(t.Context(), "db"), nil)
		wantErr(t, <-failed, sema.ErrDraining)
		if !s.Stats().FailedOpen {
			t.Error("the caller was rejected only after the recovery")
		}
		go acquire()
		wantErr(t, <-failed, sema.ErrDraining)
		wantErr(t, c.Resume(t.Context(), "db"), nil)
		time.Sleep(time.Minute)
		mustAcquire(t, s, 1).Release()
		p.Release()
	})
}

func TestSemaphore_SlowObserverDelaysNoOtherCaller(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModePooled, fleet.ModeExact} {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Bool
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Hour), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if e.Kind == sema.EventQueued && slow.CompareAndSwap(true, false) {
					time.Sleep(time.Minute)
				}
			}))))
			p := mustAcquire(t, s, 1)
			slow.Store(true)
			go func() { mustAcquire(t, s, 1).Release() }()
			synctest.Wait()
			start := time.Now()
			go func() { time.Sleep(time.Second); p.Release() }()
			mustAcquire(t, s, 1).Release()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("mode %d: waited %v for a free permit", mode, took)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestGuard_RejectsPermitsWithoutAFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var guard fleet.Guard
		c, _ := newClient(t, memstore.New())
		rate := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		lease, ok := fleet.LeaseOf(mustAcquire(t, rate, 1))
		if !ok || lease.ID == 0 || lease.Fence.Seq != 0 {
			t.Errorf("a permit of a rate has lease %+v, %v", lease, ok)
		}
		wantErr(t, guard.Admit(lease.Fence), sema.ErrInvalid)

		_, _, _, p := failedOpen(t)
		if lease, ok = fleet.LeaseOf(p); ok {
			t.Errorf("a permit of a local limit has lease %+v", lease)
		}
		wantErr(t, guard.Admit(lease.Fence), sema.ErrInvalid)
		p.Release()
	})
}

func TestOutbox_SlowObserverGetsTheLatestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		block := make(chan struct{})
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1200, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventLost {
				<-block
			}
			d.Observe(e)
		}))))
		for range 1200 {
			mustAcquire(t, s, 1)
		}
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		close(block)
		synctest.Wait()
		if lost := d.count(sema.EventLost); lost < 1000 || lost > 1001 {
			t.Errorf("%d losses were reported, want the last thousand and the one that blocked", lost)
		}
	})
}
