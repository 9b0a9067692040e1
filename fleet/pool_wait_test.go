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
)

func TestPooled_EveryAcquireIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		sems, _, _ := pools(t, 1, of(2, sema.Observe(&d)))
		for range 5 { // from the block
			mustAcquire(t, sems[0], 1).Release()
			p, err := sems[0].TryAcquire(t.Context(), 1)
			wantErr(t, err, nil)
			p.Release()
		}
		if acquired, released := d.count(sema.EventAcquired), d.count(sema.EventReleased); acquired != 10 || released != 10 {
			t.Errorf("%d acquires and %d releases were reported, want 10", acquired, released)
		}
	})
}

func TestPooled_StoreDecidesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(10))
		admin, _ := newClient(t, store)
		s := sems[0]
		hold := mustAcquire(t, s, 10)
		go func() { mustAcquire(t, s, 1).Release() }()
		synctest.Wait()
		time.Sleep(time.Second)
		for _, acquire := range []func(context.Context, int64) (sema.Permit, error){s.Acquire, s.TryAcquire} {
			start := time.Now()
			_, err := acquire(t.Context(), 50)
			wantErr(t, err, sema.ErrTooLarge)
			if took := time.Since(start); took > 2*rtt {
				t.Errorf("rejected after %v", took)
			}
		}
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 60 }), nil)
		other := mustAcquire(t, sems[1], 30)
		time.AfterFunc(time.Minute/2, other.Release)
		hold.Release()
		mustAcquire(t, s, 50).Release() // although it was too large at the pool's last reply
	})
}

func TestPooled_MaxWaitBoundsTheWholeWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, links, store := pools(t, 2, of(10, sema.MaxWait(20*time.Second)))
		admin, _ := newClient(t, store)
		mustAcquire(t, sems[0], 1).Release()
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 60 }), nil)
		other := mustAcquire(t, sems[1], 30)
		synctest.Wait()
		links[0].delay = 2 * time.Second
		start := time.Now()
		_, err := sems[0].Acquire(t.Context(), 50) // the store decides first whether it is too large
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		links[0].delay = rtt
		other.Release()
	})
}

func TestPooled_WaiterIsServedAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, _ := newClient(t, memstore.New())
		c.UseSuspendableClock(func() time.Duration { return time.Duration(slept.Load()) })
		s := semaphore(t, c, of(1, fleet.ModePooled))
		p := mustAcquire(t, s, 1)
		got := make(chan sema.Permit)
		go func() { got <- mustAcquire(t, s, 1) }()
		synctest.Wait()
		slept.Store(int64(10 * time.Minute))
		p.Release() // a permit that was lost meanwhile
		q := <-got
		wantErr(t, q.Err(), nil)
		q.Release()
	})
}

func TestPooled_PermitForAnEndedContextIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.ModePooled, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventQueued && slow.Load() {
				time.Sleep(time.Second) // meanwhile the permit is released and the context ends
			}
		}))))
		for range 20 { // whichever of grant and deadline comes first
			slow.Store(false)
			p := mustAcquire(t, s, 1)
			slow.Store(true)
			time.AfterFunc(200*time.Millisecond, p.Release)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
			synctest.Wait()
			if stats := s.Stats(); stats.Held != 0 || stats.Waiters != 0 {
				t.Fatalf("%+v", stats)
			}
		}
	})
}

func TestPooled_StoredMaxWaitersBoundsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.ModePooled))
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.MaxWaiters = 2 }), nil)
		time.Sleep(10 * time.Second)
		for range 2 {
			go s.Acquire(t.Context(), 1)
			synctest.Wait()
		}
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		if fault := faultOf(t, err); fault.Waiters != 2 {
			t.Errorf("%v: %d waiters, want 2", err, fault.Waiters)
		}
		p.Release()
	})
}

func TestPooled_RejectedTryReportsItsOwnWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(100, fleet.ModePooled))
		p := mustAcquire(t, s, 10)
		q := mustAcquire(t, semaphore(t, b, of(100)), 90)
		_, err := s.TryAcquire(t.Context(), 5)
		wantErr(t, err, sema.ErrFull)
		if fault := faultOf(t, err); fault.Weight != 5 {
			t.Errorf("the error has weight %d, want 5", fault.Weight)
		}
		p.Release()
		q.Release()
	})
}

func TestPooled_RejectsAStoredRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		mustAcquire(t, semaphore(t, a, of(5, fleet.Rate(time.Second))), 1)
		_, err := semaphore(t, b, of(5, fleet.ModePooled)).Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrInvalid)
	})
}

func TestPooled_QueuedCallerBecomesTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, store := pools(t, 2, of(8))
		admin, _ := newClient(t, store)
		all := mustAcquire(t, sems[1], 8)
		go func() { mustAcquire(t, sems[0], 1).Release() }()
		synctest.Wait()
		heavy := make(chan error)
		go func() { // the second in the queue, unknown to the store
			_, err := sems[0].Acquire(context.Background(), 5)
			heavy <- err
		}()
		time.Sleep(time.Second)
		wantErr(t, admin.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 2 }), nil)
		start := time.Now()
		wantErr(t, <-heavy, sema.ErrTooLarge)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("rejected after %v", took)
		}
		all.Release()
		time.Sleep(time.Second)
	})
}

func TestPooled_CancelledHeavyWaiterDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		x, _ := newClient(t, store)
		a, _ := newClient(t, store)
		hold := mustAcquire(t, semaphore(t, x, of(10)), 5)
		s := semaphore(t, a, of(10, fleet.ModePooled))
		ctx, cancel := context.WithCancel(t.Context())
		go s.Acquire(ctx, 10)
		synctest.Wait()
		got := make(chan error, 1)
		go func() { _, err := s.Acquire(t.Context(), 1); got <- err }()
		synctest.Wait()
		cancel() // 5 are free, and only the light request waits
		wantErr(t, <-got, nil)
		hold.Release()
	})
}

func TestPooled_TooLargeRejectsOnlyItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(10))
		ctx, cancel := context.WithCancel(t.Context())
		go sems[0].Acquire(ctx, 50)
		synctest.Wait()
		got := make(chan error, 1)
		go func() { _, err := sems[0].Acquire(t.Context(), 1); got <- err }()
		synctest.Wait()
		cancel()
		wantErr(t, <-got, nil)
	})
}

func TestPooled_TooLargeFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(10))
		hold := mustAcquire(t, sems[0], 10)
		go sems[0].Acquire(t.Context(), 1)
		synctest.Wait()
		start := time.Now()
		if _, err := sems[0].Acquire(t.Context(), 50); !errors.Is(err, sema.ErrTooLarge) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		hold.Release()
	})
}

func TestPooled_NewCallerDoesNotOvertakeTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sems, _, _ := pools(t, 1, of(1))
		s := sems[0]
		p := mustAcquire(t, s, 1)
		served, overtaken := make(chan struct{}), 0
		var wg sync.WaitGroup
		wg.Go(func() { // the first of the queue, which acquires again and again
			for range 1000 {
				q := mustAcquire(t, s, 1)
				q.Release()
				select {
				case <-served:
					return
				default:
					overtaken++
				}
			}
		})
		synctest.Wait()
		wg.Go(func() { // the second
			mustAcquire(t, s, 1).Release()
			close(served)
		})
		synctest.Wait()
		p.Release()
		wg.Wait()
		if overtaken > 2 {
			t.Errorf("a later caller was served %d times before the waiter", overtaken)
		}
	})
}
