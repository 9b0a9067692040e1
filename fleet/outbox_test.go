package fleet_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestSemaphore_ObserverMayPanicOrClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		fragile, err := c.Semaphore("fragile", 1, sema.Observe(sema.ObserverFunc(func(sema.Event) { panic("observer") })))
		wantErr(t, err, nil)
		func() {
			defer func() { recover() }()
			fragile.Acquire(context.Background(), 1)
		}()
		time.Sleep(time.Second)
		if s, err := store.Inspect(context.Background(), "fragile"); err == nil && s.InUse+int64(len(s.Queue)) > 0 {
			t.Errorf("the store still has %+v", s)
		}
		closed := make(chan struct{})
		s, err := c.Semaphore("closing", 1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventLost {
				c.Close(context.Background())
				close(closed)
			}
		})))
		wantErr(t, err, nil)
		mustAcquire(t, s, 1)
		conn.cut.Store(true)
		<-closed
	})
}

func TestStats_CountsObserverPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventLost {
				panic("observer")
			}
		}))))
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		<-p.Lost()
		synctest.Wait()
		if n := s.Stats().Panics; n != 1 {
			t.Errorf("counted %d panics, want 1", n)
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

func TestOutbox_BlockedObserverGetsOneGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		block := make(chan bool)
		s := semaphore(t, c, of(4, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventRenewed {
				<-block
			}
		}))))
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Hour)
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		n := 0
		for _, stack := range strings.Split(string(stacks), "\n\n") {
			if strings.Contains(stack, "fleet.(*outbox).run(") && strings.Contains(stack, "TestOutbox_BlockedObserverGetsOneGoroutine") {
				n++
			}
		}
		if n > 10 {
			t.Errorf("%d goroutines report events after an hour", n)
		}
		close(block)
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
