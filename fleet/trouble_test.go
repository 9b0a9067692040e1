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

func TestADeletedSemaphoreAndItsSuccessorDoNotShareASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := join(t, store)
		b, _ := join(t, store)
		old := mustAcquire(t, semaphore(t, a, of(1)), 1)
		time.Sleep(time.Second)
		wantErr(t, a.Delete(context.Background(), "db"), nil)
		p := mustAcquire(t, semaphore(t, b, of(1)), 1)
		time.Sleep(time.Minute)
		wantErr(t, old.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

// A dropOnce swallows one batch, and works again.
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

func TestOneLostMessageLosesNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dropOnce{link: &link{Store: memstore.New(), delay: time.Millisecond}}
		c, _ := join(t, d)
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		d.drop.Store(true)
		time.Sleep(time.Minute)
		if d.drop.Load() {
			t.Error("nothing was dropped")
		}
		wantErr(t, p.Err(), nil)
	})
}

func TestReleaseMayRaceClose(t *testing.T) {
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

func TestReleaseThatNobodyHearsReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wantErr(t, fleet.Release(context.Background(), p), sema.ErrLost)
	})
}

func TestAnObserverMayPanicOrClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, line := join(t, store)
		fragile, err := c.Semaphore("fragile", 1, sema.Observe(sema.ObserverFunc(func(sema.Event) { panic("observer") })))
		wantErr(t, err, nil)
		func() {
			defer func() { recover() }()
			fragile.Acquire(context.Background(), 1)
		}()
		time.Sleep(time.Second)
		if s, err := store.Inspect(context.Background(), "fragile"); err == nil && s.InUse+int64(len(s.Queue)) > 0 {
			t.Errorf("%+v is left behind", s)
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
		line.cut.Store(true)
		<-closed
	})
}

func TestADrainingSemaphoreRefusesNothingToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, of(1))
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(context.Background(), "db", func(config *fleet.Config) { config.Draining = true }), nil)
		p.Release()
		time.Sleep(time.Second)
		_, err := s.Acquire(context.Background(), 0)
		wantErr(t, err, sema.ErrDraining)
	})
}

func TestReleaseIsHeardThoughOthersKeepTalking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		line.delay = time.Millisecond
		s := semaphore(t, c, of(100))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 { // there is always something unsaid
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
			t.Errorf("it took %v to be heard", took)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

func TestReleaseSaysWhenNobodyHeardOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		line.cut.Store(true)
		wantErr(t, fleet.Release(t.Context(), p), sema.ErrUnavailable)
		wantErr(t, p.Err(), nil) // it was not lost before it was released
		wantErr(t, fleet.Release(t.Context(), q), sema.ErrLost)
		if moot := s.Stats().Unconfirmed; moot != 1 {
			t.Errorf("%d releases were moot", moot)
		}
	})
}

func TestDrainNoticesTheDeadAndTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		dead, line := join(t, store)
		admin, _ := join(t, store)
		mustAcquire(t, semaphore(t, dead, of(1)), 1)
		rate, err := dead.Semaphore("calls", 1, fleet.Rate(time.Hour))
		wantErr(t, err, nil)
		mustAcquire(t, rate, 1)
		line.cut.Store(true)
		start := time.Now()
		wantErr(t, admin.Drain(t.Context(), "db"), nil)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("the dead holder was noticed after %v", took)
		}
		wantErr(t, admin.Drain(t.Context(), "calls"), nil)
		if took := time.Since(start); took > time.Hour+time.Second {
			t.Errorf("the window was over after %v", took)
		}
	})
}

func TestCloseTellsOfReleasesNobodyHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		line.cut.Store(true)
		p.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx)
		wantErr(t, err, sema.ErrUnavailable)
		wantErr(t, err, context.DeadlineExceeded)
		select {
		case <-q.Lost():
		default:
			t.Error("a permit that nobody renews any more is not lost")
		}
		wantErr(t, q.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

func TestPartings(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		for parting, left := range map[fleet.CloseMode]int64{fleet.CloseRelease: 0, fleet.CloseAbandon: 2} {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c, _ := join(t, store)
				o := of(5)
				if pooled {
					o = o.with(fleet.ModePooled)
				}
				s := semaphore(t, c, o)
				p, q := mustAcquire(t, s, 2), mustAcquire(t, s, 1)
				q.Release()
				start := time.Now()
				wantErr(t, c.Close(t.Context(), parting), nil)
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				wantErr(t, p.Err(), sema.ErrLost)
				if taken, _ := inUse(t, store); taken != left {
					t.Errorf("%d taken, want %d", taken, left)
				}
			})
		}
	}
}

func TestAReleasedPermitIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(2))
		p := mustAcquire(t, s, 2)
		a, b, err := p.Split(1)
		wantErr(t, err, nil)
		a.Release()
		if l, ok := fleet.LeaseOf(a); !ok || l.Left != 0 {
			t.Errorf("%+v is left of what was released", l)
		}
		if l, _ := fleet.LeaseOf(b); l.Left == 0 {
			t.Error("nothing is left of what is held")
		}
		line.cut.Store(true)
		<-b.Lost()
		wantErr(t, b.Err(), sema.ErrLost)
		wantErr(t, a.Err(), nil)
		b.Release()
		wantErr(t, b.Err(), sema.ErrLost) // it was lost before
	})
}

// An amnesiac forgets every session.
type amnesiac struct {
	*link
	opened atomic.Int64
}

func (a *amnesiac) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	a.opened.Add(1)
	return a.link.Open(ctx, name, c, by)
}

func (a *amnesiac) Apply(context.Context, string, protocol.Batch) (protocol.Reply, error) {
	return protocol.Reply{Status: protocol.Unknown}, nil
}

func TestAnEngineThatForgetsIsNotAskedWithoutAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &amnesiac{link: &link{Store: memstore.New()}}
		c, _ := join(t, a)
		_, err := semaphore(t, c, of(1)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if n := a.opened.Load(); n > 120 {
			t.Errorf("%d sessions in a minute", n)
		}
	})
}

func TestASlowOpenIsNotTrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		line.delay = 200 * time.Millisecond
		_, err := semaphore(t, c, of(1, fleet.TTL(200*time.Millisecond))).Acquire(t.Context(), 1)
		if err == nil {
			t.Error("acquired in a session that was over when it began")
		}
	})
}

func TestErrorsTellWhatIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := join(t, store)
		b, _ := join(t, store)
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

func TestPeopleSeeWhoHoldsAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := join(t, store)
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
			t.Errorf("the holder is %+v", holder)
		}
		if !strings.HasPrefix(waiter.Site, "fleet/trouble_test.go:") || !waiter.Since.Equal(start.Add(time.Second)) {
			t.Errorf("the waiter is %+v", waiter)
		}
		for _, got := range []fleet.Caller{holder.Caller, waiter.Caller} {
			if got.Client != c.Instance() || got.Process != int64(os.Getpid()) || got.Host == "" || got.Kind != "program" || got.Renewed.IsZero() {
				t.Errorf("the client is %+v", got)
			}
		}
		cancel()
		p.Release()
	})
}

func TestWatchYieldsWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := join(t, store)
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
			t.Errorf("saw %v in use, and then %v", seen, ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustAcquire(t, s, 1)
		looks := 0
		for range c.Watch(ctx, "db", time.Second) {
			looks++
		}
		if looks != 1 {
			t.Errorf("%d changes, and nothing had changed", looks)
		}
	})
}

func TestReleasesOfADeletedSemaphoreAreNotMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		line.delay = time.Millisecond
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		wantErr(t, c.Delete(t.Context(), "db"), nil)
		p.Release()
		wantErr(t, c.Close(t.Context()), nil)
	})
}

// closedDoor is an engine that lets nobody in.
type closedDoor struct{ fleet.Store }

func (closedDoor) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, fmt.Errorf("%w: this token may not acquire", fs.ErrPermission)
}

// Who may not is told so, and does not wait for the engine to change its mind.
func TestWhoMayNotIsToldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, closedDoor{memstore.New()})
		s := semaphore(t, c, of(1))
		start := time.Now()
		_, err := s.Acquire(t.Context(), 1)
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, sema.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
