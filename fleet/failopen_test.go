package fleet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// An eventLog is an observer that stores the kinds of events.
type eventLog struct {
	mu     sync.Mutex
	kinds  []sema.EventKind
	closed int // number of recoveries
}

func (d *eventLog) Observe(e sema.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kinds = append(d.kinds, e.Kind)
	if e.Kind == sema.EventRecovered && e.Capacity > 0 {
		d.closed++
	}
}

func (d *eventLog) count(k sema.EventKind) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, kind := range d.kinds {
		if kind == k {
			n++
		}
	}
	return n
}

func TestFailOpen_AppliesAndRecovers(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			var d eventLog
			c, conn := newClient(t, memstore.New())
			s := semaphore(t, c, of(5, fleet.TTL(6*time.Second), mode, sema.Observe(&d), fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second), fleet.RecoverAfter(10*time.Second)))
			before := mustAcquire(t, s, 5)
			conn.cut.Store(true)
			cutAt := time.Now()
			a := mustAcquire(t, s, 1) // waits until the semaphore fails open
			if took := time.Since(cutAt); took < 3*time.Second || took > 6*time.Second {
				t.Errorf("failed open after %v, want 3 s after the first heartbeat without a reply", took)
			}
			b := mustAcquire(t, s, 1)
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrFull)
			if stats := s.Stats(); !stats.FailedOpen || stats.HeldOpen != 2 {
				t.Errorf("%+v", stats)
			}
			if _, leased := fleet.LeaseOf(a); leased || a.Lost() != nil {
				t.Error("a permit of the local limit has a lease")
			}
			<-before.Lost()
			time.Sleep(time.Minute)

			conn.cut.Store(false)
			time.Sleep(5 * time.Second) // the store replies, but not for long enough
			if !s.Stats().FailedOpen {
				t.Error("recovered after one reply")
			}
			conn.cut.Store(true)
			time.Sleep(4 * time.Second)
			conn.cut.Store(false)
			time.Sleep(9 * time.Second)
			if !s.Stats().FailedOpen {
				t.Error("the time before the second outage was counted")
			}
			time.Sleep(5 * time.Second)
			if s.Stats().FailedOpen {
				t.Error("still failed open")
			}
			p := mustAcquire(t, s, 5)
			if _, leased := fleet.LeaseOf(p); !leased {
				t.Error("a permit of the store has no lease")
			}
			wantErr(t, a.Err(), nil)
			a.Release()
			b.Release()
			p.Release()
			if opened, closed := d.count(sema.EventFailedOpen), d.closed; opened != 1 || closed != 1 {
				t.Errorf("reported %d times as failed open, %d times as recovered", opened, closed)
			}
		})
	}
}

func TestFailOpen_ShortOutageDoesNotApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.FailOpen(2), fleet.FailOpenAfter(5*time.Second)))
		mustAcquire(t, s, 1).Release()
		for range 10 {
			conn.cut.Store(true)
			go s.Acquire(t.Context(), 1)
			time.Sleep(3 * time.Second)
			conn.cut.Store(false)
			time.Sleep(2 * time.Second)
			if s.Stats().FailedOpen {
				t.Fatal("failed open")
			}
		}
	})
}

func TestSemaphore_FailClosedIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.MaxWait(20*time.Second)))
		p := mustAcquire(t, s, 1)
		waited := make(chan error)
		go func() {
			_, err := s.Acquire(context.Background(), 1)
			waited <- err
		}()
		time.Sleep(19 * time.Second)
		conn.cut.Store(true) // only the last exchange fails: the queue was too long
		wantErr(t, <-waited, sema.ErrTimeout)
		_, err := s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		p.Release()
	})
}
