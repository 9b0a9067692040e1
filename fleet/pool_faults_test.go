package fleet_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestPooled_EndsAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		asleep := func() time.Duration { return time.Duration(slept.Load()) }
		store := memstore.NewWithClock(func() time.Time { return time.Now().Add(asleep()) })
		a, conn := newClient(t, store)
		a.UseSuspendableClock(asleep)
		s := semaphore(t, a, of(1, fleet.ModePooled))
		mustAcquire(t, s, 1).Release()
		// The machine is suspended for ten minutes. Its boot clock continues, its timers do not.
		conn.cut.Store(true)
		for range 300 {
			slept.Add(int64(2 * time.Second))
			inUse(t, store) // others use the store meanwhile
		}
		b, _ := newClient(t, store)
		b.UseSuspendableClock(asleep)
		q := mustAcquire(t, semaphore(t, b, of(1)), 1)
		if p, err := s.TryAcquire(t.Context(), 1); err == nil { // the machine has just resumed
			wantErr(t, p.Err(), sema.ErrLost)
			p.Release()
		}
		wantErr(t, sema.Do(t.Context(), s, 1, func(context.Context) error {
			t.Error("Do calls the function with a lost permit")
			return nil
		}), sema.ErrLost)
		time.Sleep(200 * time.Millisecond)
		if s.Stats().Blocks > 0 {
			t.Error("the pool still has permits")
		}
		q.Release()
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

// TestPooled_RevokedBlockOfARetiredGenerationIsDropped counts goroutines of the whole process, so it
// does not run in parallel.
func TestPooled_RevokedBlockOfARetiredGenerationIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		pooled := semaphore(t, a, of(1, fleet.ModePooled))
		exact := semaphore(t, b, of(1))
		for range 20 {
			p := mustAcquire(t, pooled, 1)
			done := make(chan struct{})
			go func() { mustAcquire(t, exact, 1).Release(); close(done) }()
			time.Sleep(time.Second) // recalled, and retired
			l, _ := fleet.LeaseOf(p)
			wantErr(t, b.Revoke(t.Context(), "db", fleet.Revocation{Lease: l.ID}), nil)
			<-done
			p.Release()
			time.Sleep(time.Second)
		}
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		if n := strings.Count(string(buf), "fleet.(*pooled).collect("); n > 1 {
			t.Errorf("%d goroutines wait for permits of dropped generations", n)
		}
	})
}
