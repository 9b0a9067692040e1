package fleet_test

import (
	"context"
	"errors"
	"fmt"
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

// A link passes calls on to a store. It can delay or cut them, and counts batches.
type link struct {
	fleet.Store
	delay       time.Duration
	cut         atomic.Bool
	loseReplies atomic.Bool
	batches     atomic.Int64
	ops         atomic.Int64
}

var errCut = errors.New("cut off")

func (l *link) pass(ctx context.Context) error {
	if l.cut.Load() {
		<-ctx.Done()
		return errCut
	}
	time.Sleep(l.delay)
	return nil
}

func (l *link) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := l.pass(ctx); err != nil {
		return 0, protocol.Config{}, err
	}
	return l.Store.Open(ctx, name, c, by)
}

func (l *link) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := l.pass(ctx); err != nil {
		return protocol.Reply{}, err
	}
	l.batches.Add(1)
	l.ops.Add(int64(len(b.Ops)))
	reply, err := l.Store.Apply(ctx, name, b)
	if l.loseReplies.Load() {
		<-ctx.Done()
		return protocol.Reply{}, errCut
	}
	return reply, err
}

func (l *link) Listen(ctx context.Context, instance string, notify func(string)) error {
	return l.Store.Listen(ctx, instance, func(name string) {
		if !l.cut.Load() {
			notify(name)
		}
	})
}

// newClient returns a client of a store, which is closed when the test ends.
func newClient(t *testing.T, store fleet.Store) (*fleet.Client, *link) {
	t.Helper()
	l := &link{Store: store}
	c := fleet.New(l)
	c.UseBubbleClock()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
	})
	return c, l
}

// A spec contains the arguments of Client.Semaphore, except for the name.
type spec struct {
	capacity int64
	opts     []fleet.Option
}

func of(capacity int64, opts ...fleet.Option) spec { return spec{capacity, opts} }

// with returns the spec with more options.
func (s spec) with(opts ...fleet.Option) spec { return of(s.capacity, slices.Concat(s.opts, opts)...) }

func semaphore(t *testing.T, c *fleet.Client, o spec) *fleet.Semaphore {
	t.Helper()
	s, err := c.Semaphore("db", o.capacity, o.opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setStored changes the stored configuration, including fields that clients do not change.
func setStored(t *testing.T, store fleet.Store, change func(*protocol.Config)) {
	t.Helper()
	stored, err := store.Inspect(t.Context(), "db")
	wantErr(t, err, nil)
	change(&stored.Config)
	wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Configure: &stored.Config}), nil)
}

func mustAcquire(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// inUse returns the permits in use and the number of waiters, as stored.
func inUse(t *testing.T, store fleet.Store) (used int64, waiting int) {
	t.Helper()
	s, err := store.Inspect(context.Background(), "db")
	if err != nil {
		t.Fatal(err)
	}
	return s.InUse, len(s.Queue)
}

func TestSemaphore_ClientsShareTheCapacityInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var sems []*fleet.Semaphore
		for range 3 {
			c, _ := newClient(t, store)
			sems = append(sems, semaphore(t, c, of(2)))
		}
		p := mustAcquire(t, sems[0], 2)
		_, err := sems[1].TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrFull)
		order := make(chan string, 10)
		for i, n := range []int64{1, 2, 1} { // the heavy request is not overtaken
			go func() {
				q := mustAcquire(t, sems[i], n)
				order <- fmt.Sprint(i)
				time.Sleep(time.Second)
				q.Release()
			}()
			synctest.Wait()
		}
		if used, waiting := inUse(t, store); used != 2 || waiting != 3 {
			t.Errorf("%d in use, %d waiting", used, waiting)
		}
		start := time.Now()
		p.Release()
		for _, want := range []string{"0", "1", "2"} {
			if got := <-order; got != want {
				t.Errorf("client %s was served, want %s", got, want)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v: the waiters were not woken in time", took)
		}
		time.Sleep(2 * time.Second)
		if used, waiting := inUse(t, store); used != 0 || waiting != 0 {
			t.Errorf("%d in use, %d waiting", used, waiting)
		}
	})
}

func TestSemaphore_BehavesLikeOtherGates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(4))
		cause := errors.New("the cause")
		ended, end := context.WithCancelCause(context.Background())
		end(cause)
		for _, try := range []struct {
			ctx  context.Context
			n    int64
			want error
		}{
			{context.Background(), -1, sema.ErrInvalid},
			{nil, 1, sema.ErrInvalid},
			{ended, 1, cause},
			{context.Background(), 5, sema.ErrTooLarge},
			{context.Background(), 0, nil},
		} {
			for _, acquire := range []func(context.Context, int64) (sema.Permit, error){s.Acquire, s.TryAcquire} {
				p, err := acquire(try.ctx, try.n)
				wantErr(t, err, try.want)
				if p.Held() {
					t.Errorf("weight %d: a permit was granted", try.n)
				}
			}
		}
		first, rest, err := mustAcquire(t, s, 4).Split(1)
		wantErr(t, err, nil)
		wantErr(t, fleet.Release(context.Background(), first), nil)
		if used, _ := inUse(t, store); used != 3 {
			t.Errorf("%d in use", used)
		}
		wantErr(t, fleet.Release(context.Background(), rest), nil)
		if used, _ := inUse(t, store); used != 0 {
			t.Errorf("%d in use", used)
		}
	})
}

func TestSemaphore_CancelledWaitLeavesNoTicket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1, sema.MaxWait(3*time.Second)))
		p := mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrTimeout)
		synctest.Wait()
		if _, waiting := inUse(t, store); waiting != 0 {
			t.Errorf("%d waiting", waiting)
		}
		p.Release()
	})
}

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

func TestSemaphore_UnreachableStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.cut.Store(true)
		s := semaphore(t, c, of(1, sema.MaxWait(7*time.Second)))
		_, err := s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrUnavailable)
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

func TestRate_HoldsAcrossClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(10, fleet.Rate(time.Second)))
			for range 10 {
				wg.Go(func() { mustAcquire(t, s, 1).Release() })
			}
		}
		wg.Wait()
		if took := time.Since(start); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("30 acquires at 10 per second took %v, want 2 s", took)
		}
	})
}

func TestClient_CloseWaitsForPermitsAndReportsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := fleet.New(store)
		c.UseBubbleClock()
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		rejected := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background(), 1)
			rejected <- err
		}()
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			p.Release()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err := c.Close(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, <-rejected, sema.ErrClosed)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrClosed)
		if used, _ := inUse(t, store); used != 1 {
			t.Errorf("%d in use, want the one that was not released", used)
		}
		q.Release()
		wantErr(t, c.Close(context.Background()), sema.ErrClosed)
	})
}

func TestSemaphore_ReportsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		var mu sync.Mutex
		var kinds []sema.EventKind
		s := semaphore(t, c, of(1, sema.MaxWait(time.Second), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		}))))
		p := mustAcquire(t, s, 1)
		s.TryAcquire(context.Background(), 1)
		s.Acquire(context.Background(), 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		s.Acquire(ctx, 1)
		p.Release()
		mustAcquire(t, s, 1)
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []sema.EventKind{
			sema.EventAcquired, sema.EventExhausted, sema.EventRejected, sema.EventQueued, sema.EventTimedOut, sema.EventQueued, sema.EventCancelled,
			sema.EventReleased, sema.EventRecovered, sema.EventAcquired, sema.EventExhausted, sema.EventLost,
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
	})
}

func TestOpen_ByURL(t *testing.T) {
	t.Parallel()
	c, err := fleet.Open(context.Background(), "mem:")
	wantErr(t, err, nil)
	s := semaphore(t, c, of(1))
	mustAcquire(t, s, 1).Release()
	wantErr(t, c.Close(context.Background()), nil)
	for _, storeURL := range []string{"nosuch://host", "redis://user:secret@%zz", "127.0.0.1:6379", "redis", ""} {
		_, err := fleet.Open(context.Background(), storeURL)
		if wantErr(t, err, sema.ErrInvalid); sema.Hint(err) == "" {
			t.Errorf("%q: %v has no hint", storeURL, err)
		}
	}
}

func TestClient_RejectsInvalidOptionsAndNames(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	defer c.Close(context.Background())
	for _, o := range []spec{
		of(-2), of(1, fleet.TTL(time.Millisecond)), of(1, fleet.TTL(0)), of(1, fleet.Ramp(-1)), of(1, fleet.Rate(-1)),
		of(1, fleet.TryTimeout(0)), of(1, fleet.UnavailableAfter(-1)), of(1, nil),
	} {
		_, err := c.Semaphore("a", o.capacity, o.opts...)
		wantErr(t, err, sema.ErrInvalid)
	}
	if _, err := c.Semaphore("a", 1, fleet.TTL(time.Millisecond)); !strings.Contains(err.Error(), "TTL of 1ms: want 100ms to ") {
		t.Error(err)
	}
	if err := c.Resize(context.Background(), "a", -1); !strings.Contains(err.Error(), "capacity -1: want 0 to ") {
		t.Error(err)
	}
	for _, name := range []string{"", "a b", "ä", "{a}", string(make([]byte, 201))} {
		_, err := c.Semaphore(name, 1)
		wantErr(t, err, sema.ErrInvalid)
	}
	semaphore(t, c, of(1))
	_, err := c.Semaphore("db", 2)
	wantErr(t, err, sema.ErrInvalid)
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
