package fleet_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestSession_HeartbeatsKeepPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(1000, fleet.TTL(15*time.Second)))
		var permits []sema.Permit
		for range 1000 {
			permits = append(permits, mustAcquire(t, s, 1))
		}
		conn.batches.Store(0)
		time.Sleep(time.Hour)
		for _, p := range permits {
			wantErr(t, p.Err(), nil)
		}
		if n := conn.batches.Load(); n < 720 || n > 830 {
			t.Errorf("%d batches per hour for 1000 leases, want about one per 5 s", n)
		}
	})
}

func TestSession_ConcurrentRequestsShareABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = 10 * time.Millisecond
		s := semaphore(t, c, of(256))
		mustAcquire(t, s, 1).Release() // opens the session
		synctest.Wait()
		time.Sleep(time.Second)
		conn.batches.Store(0)
		start := time.Now()
		var wg sync.WaitGroup
		for range 256 {
			wg.Go(func() { mustAcquire(t, s, 1).Release() })
		}
		wg.Wait()
		if n, took := conn.batches.Load(), time.Since(start); n > 3 || took > 30*time.Millisecond {
			t.Errorf("%d batches and %v for 256 concurrent acquires", n, took)
		}
	})
}

func TestSession_UnusedSessionIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		s := semaphore(t, c, of(1))
		mustAcquire(t, s, 1).Release()
		time.Sleep(5 * time.Minute)
		conn.batches.Store(0)
		time.Sleep(time.Hour)
		if n := conn.batches.Load(); n != 0 {
			t.Errorf("%d batches for an unused semaphore", n)
		}
		mustAcquire(t, s, 1).Release()
	})
}

func TestSession_DeletedSemaphoreAndSuccessorDoNotShareASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		old := mustAcquire(t, semaphore(t, a, of(1)), 1)
		time.Sleep(time.Second)
		wantErr(t, a.Delete(context.Background(), "db"), nil)
		p := mustAcquire(t, semaphore(t, b, of(1)), 1)
		time.Sleep(time.Minute)
		wantErr(t, old.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

// A dropOnce drops one batch.
type dropOnce struct {
	*link
	drop atomic.Bool
}

func (d *dropOnce) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if d.drop.CompareAndSwap(true, false) {
		<-ctx.Done()
		return protocol.Reply{}, errCut
	}
	return d.link.Apply(ctx, name, b)
}

func TestSession_OneLostMessageLosesNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dropOnce{link: &link{Store: memstore.New(), delay: time.Millisecond}}
		c, _ := newClient(t, d)
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		d.drop.Store(true)
		time.Sleep(time.Minute)
		if d.drop.Load() {
			t.Error("nothing was dropped")
		}
		wantErr(t, p.Err(), nil)
	})
}

// A forgetfulStore forgets every session.
type forgetfulStore struct {
	*link
	opened atomic.Int64
}

func (a *forgetfulStore) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	a.opened.Add(1)
	return a.link.Open(ctx, name, c, by)
}

func (a *forgetfulStore) Apply(context.Context, string, protocol.Batch) (protocol.Reply, error) {
	return protocol.Reply{Status: protocol.Unknown}, nil
}

func TestSession_StoreThatLosesSessionsIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &forgetfulStore{link: &link{Store: memstore.New()}}
		c, _ := newClient(t, a)
		_, err := semaphore(t, c, of(1)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if n := a.opened.Load(); n > 120 {
			t.Errorf("%d sessions were opened in a minute", n)
		}
	})
}

func TestSession_SlowOpenIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = 200 * time.Millisecond
		_, err := semaphore(t, c, of(1, fleet.TTL(200*time.Millisecond))).Acquire(t.Context(), 1)
		if err == nil {
			t.Error("acquired in a session that had expired when it was opened")
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
