package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
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

func TestClient_CloseDuringReleases(t *testing.T) {
	t.Parallel()
	for range 50 {
		c := fleet.New(memstore.New())
		s := semaphore(t, c, of(100))
		var permits []sema.Permit
		for range 50 {
			permits = append(permits, mustAcquire(t, s, 1))
		}
		var wg sync.WaitGroup
		for _, p := range permits {
			wg.Go(p.Release)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wg.Wait()
		permits[0].Release()
	}
}

func TestRelease_AfterCloseReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wantErr(t, fleet.Release(context.Background(), p), sema.ErrLost)
	})
}

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

func TestSemaphore_DrainRejectsWeightZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(context.Background(), "db", func(config *fleet.Config) { config.Draining = true }), nil)
		p.Release()
		time.Sleep(time.Second)
		_, err := s.Acquire(context.Background(), 0)
		wantErr(t, err, sema.ErrDraining)
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

func TestClient_DrainEndsAfterExpiryAndWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		crashed, conn := newClient(t, store)
		admin, _ := newClient(t, store)
		mustAcquire(t, semaphore(t, crashed, of(1)), 1)
		rate, err := crashed.Semaphore("calls", 1, fleet.Rate(time.Hour))
		wantErr(t, err, nil)
		mustAcquire(t, rate, 1)
		conn.cut.Store(true)
		start := time.Now()
		wantErr(t, admin.Drain(t.Context(), "db"), nil)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("the holder expired after %v", took)
		}
		wantErr(t, admin.Drain(t.Context(), "calls"), nil)
		if took := time.Since(start); took > time.Hour+time.Second {
			t.Errorf("the window ended after %v", took)
		}
	})
}

func TestClient_CloseReportsUnconfirmedReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		conn.cut.Store(true)
		p.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx)
		wantErr(t, err, sema.ErrUnavailable)
		wantErr(t, err, context.DeadlineExceeded)
		select {
		case <-q.Lost():
		default:
			t.Error("a permit that is not renewed any more is not lost")
		}
		wantErr(t, q.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

func TestClient_CloseModes(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		for mode, left := range map[fleet.CloseMode]int64{fleet.CloseRelease: 0, fleet.CloseAbandon: 2} {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c, _ := newClient(t, store)
				o := of(5)
				if pooled {
					o = o.with(fleet.ModePooled)
				}
				s := semaphore(t, c, o)
				p, q := mustAcquire(t, s, 2), mustAcquire(t, s, 1)
				q.Release()
				start := time.Now()
				wantErr(t, c.Close(t.Context(), mode), nil)
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				wantErr(t, p.Err(), sema.ErrLost)
				if used, _ := inUse(t, store); used != left {
					t.Errorf("%d in use, want %d", used, left)
				}
			})
		}
	}
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

func TestSemaphore_ErrorsContainTheStoredCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		p := mustAcquire(t, semaphore(t, a, of(3)), 2)
		mismatched := make(chan sema.Event, 1)
		s := semaphore(t, b, of(7, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventMismatched {
				mismatched <- e
			}
		}))))
		_, err := s.TryAcquire(t.Context(), 2)
		var fault *sema.Error
		if !errors.As(err, &fault) || fault.Capacity != 3 || fault.InUse != 2 {
			t.Errorf("%v", err)
		}
		if e := <-mismatched; e.Capacity != 3 || !strings.Contains(e.Report, "capacity 3, not 7") {
			t.Errorf("%+v", e)
		}
		p.Release()
	})
}

func TestClient_InfoListsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1, fleet.Labels(map[string]string{"team": "payments", "job": "a b"})))
		start := time.Now()
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.Sleep(time.Second)
		go func() { s.Acquire(ctx, 1) }()
		synctest.Wait()
		snapshot, err := c.Info(t.Context(), "db")
		wantErr(t, err, nil)
		holder, waiter := snapshot.Holders[0], snapshot.Waiters[0]
		if labels := map[string]string{"job": "a b", "team": "payments"}; !strings.HasPrefix(holder.Site, "fleet/fleet_test.go:") || !maps.Equal(holder.Labels, labels) || !holder.Since.Equal(start) {
			t.Errorf("holder %+v", holder)
		}
		if !strings.HasPrefix(waiter.Site, "fleet/robustness_test.go:") || !waiter.Since.Equal(start.Add(time.Second)) {
			t.Errorf("waiter %+v", waiter)
		}
		for _, got := range []fleet.Caller{holder.Caller, waiter.Caller} {
			if got.Client != c.Instance() || got.Process != int64(os.Getpid()) || got.Host == "" || got.Kind != "program" || got.Renewed.IsZero() {
				t.Errorf("client %+v", got)
			}
		}
		cancel()
		p.Release()
	})
}

func TestClient_WatchYieldsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(2))
		mustAcquire(t, s, 1)
		go func() {
			time.Sleep(time.Minute)
			mustAcquire(t, s, 1)
			time.Sleep(time.Minute)
			wantErr(t, c.Delete(t.Context(), "db"), nil)
		}()
		var seen []int64
		var ended error
		for snapshot, err := range c.Watch(t.Context(), "db", time.Second) {
			seen, ended = append(seen, snapshot.InUse), err
		}
		if !slices.Equal(seen, []int64{1, 2, 0}) || !errors.Is(ended, fs.ErrNotExist) {
			t.Errorf("yielded %v in use, and then %v", seen, ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustAcquire(t, s, 1)
		changes := 0
		for range c.Watch(ctx, "db", time.Second) {
			changes++
		}
		if changes != 1 {
			t.Errorf("%d changes, want 1", changes)
		}
	})
}

func TestClient_CloseIgnoresReleasesOfADeletedSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = time.Millisecond
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		wantErr(t, c.Delete(t.Context(), "db"), nil)
		p.Release()
		wantErr(t, c.Close(t.Context()), nil)
	})
}

// A deniedStore denies every Open.
type deniedStore struct{ fleet.Store }

func (deniedStore) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, fmt.Errorf("%w: this token may not acquire", fs.ErrPermission)
}

// TestSemaphore_PermissionErrorFailsAtOnce checks that a caller without the right to acquire does
// not wait.
func TestSemaphore_PermissionErrorFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, deniedStore{memstore.New()})
		s := semaphore(t, c, of(1))
		start := time.Now()
		_, err := s.Acquire(t.Context(), 1)
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, sema.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A denyingStore denies every Apply while denied is set, as a service that has removed the
// token.
type denyingStore struct {
	fleet.Store
	denied atomic.Bool
}

func (d *denyingStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if d.denied.Load() {
		return protocol.Reply{}, fmt.Errorf("%w: unknown token", fs.ErrPermission)
	}
	return d.Store.Apply(ctx, name, b)
}

// TestSemaphore_DenialIsAReply denies access to a client that has a session: a waiter and new
// callers fail at once, the local limit does not apply, and the lease continues if the denial
// ends in time.
func TestSemaphore_DenialIsAReply(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			var events eventLog
			store := &denyingStore{Store: memstore.New()}
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(1, mode, sema.Observe(&events), fleet.FailOpen(1), fleet.FailOpenAfter(time.Second)))
			held := mustAcquire(t, s, 1)
			waited := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context(), 1)
				waited <- err
			}()
			synctest.Wait()
			store.denied.Store(true)
			denied := func(what string, err error) {
				t.Helper()
				wantErr(t, err, fs.ErrPermission)
				if errors.Is(err, sema.ErrUnavailable) || !strings.Contains(err.Error(), "unknown token") {
					t.Errorf("%s: %v", what, err)
				}
			}
			denied("the waiter", <-waited) // with the next heartbeat
			start := time.Now()
			_, err := s.Acquire(t.Context(), 1)
			denied("acquire", err)
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("denied after %v", took)
			}
			time.Sleep(2 * time.Second) // longer than FailOpenAfter
			if stats := s.Stats(); stats.FailedOpen || events.count(sema.EventFailedOpen) > 0 {
				t.Errorf("failed open: %+v", stats)
			}
			store.denied.Store(false)
			time.Sleep(20 * time.Second)
			wantErr(t, held.Err(), nil)
			held.Release()
			mustAcquire(t, s, 1).Release()
		})
	}
}

// TestSemaphore_DenialBeforeATry checks the error of callers that come while the client pauses
// after a denial.
func TestSemaphore_DenialBeforeATry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, deniedStore{memstore.New()})
		s := semaphore(t, c, of(1, fleet.TryTimeout(time.Millisecond)))
		for range 20 { // the pauses grow
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, fs.ErrPermission)
			if errors.Is(err, sema.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	})
}
