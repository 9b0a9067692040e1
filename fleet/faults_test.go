package fleet_test

import (
	"context"
	"errors"
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

func TestFailOpen_ClosedClientGrantsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		conn.cut.Store(true)
		p := mustAcquire(t, s, 2)
		waiting := make(chan error, 1)
		go func() { _, err := s.Acquire(context.Background(), 1); waiting <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err == nil {
			t.Error("2 permits are held, and Close returns no error")
		}
		select {
		case err := <-waiting:
			wantErr(t, err, sema.ErrClosed)
		case <-time.After(10 * time.Second):
			t.Error("the waiter is not rejected")
		}
		p.Release()
		if _, err := s.Acquire(context.Background(), 1); !errors.Is(err, sema.ErrClosed) {
			t.Errorf("a closed client grants permits: %v", err)
		}
	})
}

// A throttledStore delays each call beyond a thousand by a millisecond, so that a loop ends.
type throttledStore struct {
	fleet.Store
	calls atomic.Int64
}

func (s *throttledStore) call() {
	if s.calls.Add(1) > 1000 {
		time.Sleep(time.Millisecond)
	}
}

func (s *throttledStore) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.call()
	return s.Store.Open(ctx, name, c, by)
}

func (s *throttledStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.call()
	return s.Store.Apply(ctx, name, b)
}

func TestFailOpen_PooledRateDoesNotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		other, _ := newClient(t, store)
		mustAcquire(t, semaphore(t, other, of(5, fleet.Rate(time.Second))), 1)
		calls := &throttledStore{Store: store}
		c, conn := newClient(t, calls)
		s := semaphore(t, c, of(5, fleet.ModePooled, fleet.FailOpen(2)))
		conn.cut.Store(true)
		mustAcquire(t, s, 1).Release()
		conn.cut.Store(false)
		time.Sleep(30 * time.Second)
		if n := calls.calls.Load(); n > 100 {
			t.Errorf("%d sessions were opened", n)
		}
	})
}

// A slowContext delays Deadline, like a caller that is preempted there.
type slowContext struct{ context.Context }

func (slowContext) Deadline() (time.Time, bool) { time.Sleep(time.Minute); return time.Time{}, false }

func TestFailOpen_AcquireDuringTheTransition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, sema.MaxWait(time.Hour), fleet.FailOpen(2)))
		conn.cut.Store(true)
		got := make(chan error, 1)
		go func() { _, err := s.Acquire(slowContext{t.Context()}, 1); got <- err }()
		mustAcquire(t, s, 1).Release() // fails open after 15 s
		wantErr(t, <-got, nil)         // 2 are free at the local limit
	})
}

func TestFailOpen_OldFailureDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		loseOne := func() {
			conn.cut.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s.Acquire(ctx, 1)
			time.Sleep(5 * time.Second)
			conn.cut.Store(false)
		}
		loseOne()
		time.Sleep(time.Hour) // the store is reachable, and not called
		loseOne()
		if s.Stats().FailedOpen {
			t.Error("failed open after one lost message")
		}
	})
}

type otherVersion struct{ fleet.Store }

func (otherVersion) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, protocol.ErrVersion
}

func TestFailOpen_RejectionIsAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, otherVersion{memstore.New()})
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		for range 30 {
			_, err := s.Acquire(t.Context(), 1)
			wantErr(t, err, protocol.ErrVersion)
			time.Sleep(time.Second)
		}
	})
}

func TestFailOpen_MaxWaitBoundsBothWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, sema.MaxWait(20*time.Second), fleet.FailOpen(1)))
		conn.cut.Store(true)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				start := time.Now()
				if _, err := s.Acquire(context.Background(), 1); err != nil && time.Since(start) > 21*time.Second {
					t.Errorf("waited %v with a MaxWait of 20 s: %v", time.Since(start), err)
				}
			})
		}
		wg.Wait()
	})
}

// A delayedStore delays Open by 50 ms, unless the context ends before.
type delayedStore struct{ fleet.Store }

func (p delayedStore) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	select {
	case <-time.After(50 * time.Millisecond):
		return p.Store.Open(ctx, name, c, by)
	case <-ctx.Done():
		return 0, protocol.Config{}, context.Cause(ctx)
	}
}

func TestFailOpen_SlowRepliesDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, delayedStore{memstore.New()})
		s := semaphore(t, c, of(5, fleet.FailOpen(2), fleet.FailOpenAfter(time.Second)))
		mustAcquire(t, s, 1)
		if s.Stats().FailedOpen {
			t.Error("failed open although every reply comes after 50 ms")
		}
	})
}

func TestStats_CountsWaitersOfTheLocalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(1)))
		conn.cut.Store(true)
		p := mustAcquire(t, s, 1)
		go s.Acquire(t.Context(), 1)
		synctest.Wait()
		if n := s.Stats().Waiters; n != 1 {
			t.Errorf("%d waiters, want 1", n)
		}
		p.Release()
	})
}

func TestSemaphore_TryAcquireDuringAnOutageIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5))
		conn.cut.Store(true)
		start := time.Now()
		if _, err := s.TryAcquire(context.Background(), 1); time.Since(start) > 20*time.Second {
			t.Errorf("TryAcquire took %v: %v", time.Since(start), err)
		}
	})
}
