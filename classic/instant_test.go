package classic_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

// These tests serve a waiter and end its context at the same instant, outside of a bubble,
// where waiters are reused: a wake-up that a waiter leaves behind would end the next wait.

// atOnce starts a call in another goroutine, waits until it is queued, and then serves it and
// ends its context, in an order that differs from round to round. It returns what the call and
// serve return.
func atOnce[T any](round int, fn func(ctx context.Context) (T, error), waiters func() int, serve func() bool) (v T, served bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = fn(ctx)
	}()
	for waiters() == 0 {
		select {
		case <-done:
			return v, false, err
		default:
			runtime.Gosched()
		}
	}
	switch round % 3 {
	case 0:
		go cancel(errCause)
		served = serve()
	case 1:
		served = serve()
		cancel(errCause)
	case 2: // the waiter is woken, and mostly served before it leaves the queue
		cancel(errCause)
		served = serve()
	}
	<-done
	return v, served, err
}

func TestRWLock_ReusedWaitersKeepNoWakeUp(t *testing.T) {
	t.Parallel()
	l := classic.NewRWLock(classic.FairRW, sema.MaxWait(time.Hour))
	for round := range stressRounds {
		var held atomic.Bool
		gate := []sema.Gate{l.Reader(), l.Writer()}[round/3%2]
		p := mustAcquire(t, l.Writer(), 1)
		held.Store(true)
		permit, served, err := atOnce(round, func(ctx context.Context) (sema.Permit, error) {
			permit, err := gate.Acquire(ctx, 1)
			if err == nil && held.Load() {
				t.Error("acquired what a writer holds")
			}
			return permit, err
		}, func() int { st := l.Stats(); return st.Readers.Waiters + st.Writers.Waiters }, func() bool {
			held.Store(false)
			p.Release()
			return true
		})
		if err != nil && err != errCause || !served {
			t.Fatalf("round %d: %v, served %v", round, err, served)
		}
		permit.Release()
		mustAcquire(t, l.Writer(), 1).Release()
	}
}

func TestBuffer_ReusedWaitersKeepNoWakeUp(t *testing.T) {
	t.Parallel()
	b := classic.NewBuffer[int](1)
	for round := range stressRounds {
		v, served, err := atOnce(round, b.Take, func() int { return b.Stats().Takes.Waiters }, func() bool { return b.TryPut(1 + round) })
		if err != nil {
			v, _ = b.TryTake() // the item stayed
		}
		if !served || v != 1+round || err != nil && err != errCause {
			t.Fatalf("round %d: item %d, %v, served %v", round, v, err, served)
		}
		wantErr(t, b.Put(t.Context(), 0), nil)
		_, served, err = atOnce(round, func(ctx context.Context) (int, error) { return b.PutAll(ctx, []int{1}) },
			func() int { return b.Stats().Puts.Waiters }, func() bool { _, ok := b.TryTake(); return ok })
		if _, left := b.TryTake(); left != (err == nil) || !served {
			t.Fatalf("round %d: error %v, item added %v, served %v", round, err, left, served)
		}
	}
}

func TestTakeAny_AtTheInstantOfACancel(t *testing.T) {
	t.Parallel()
	all := newBuffers(2, 1)
	for round := range stressRounds {
		got, served, err := atOnce(round, func(ctx context.Context) (taken, error) {
			v, i, err := classic.TakeAny(ctx, all...)
			return taken{v, i}, err
		}, func() int { return min(all[0].Stats().Takes.Waiters, all[1].Stats().Takes.Waiters) }, func() bool {
			return all[0].TryPut(1) && all[1].TryPut(2)
		})
		left := all[0].Len() + all[1].Len()
		if want := map[bool]int{true: 1, false: 2}[err == nil]; left != want || !served || err == nil && got.v != 1+got.i {
			t.Fatalf("round %d: %+v, error %v, %d items left, served %v", round, got, err, left, served)
		}
		all[0].TryTake()
		all[1].TryTake()
		wantNoWaiters(t, all)
	}
}

func TestRendezvous_ReusedWaitersKeepNoWakeUp(t *testing.T) {
	t.Parallel()
	r := classic.NewRendezvous[int]()
	for round := range stressRounds {
		var other int
		v, met, err := atOnce(round, func(ctx context.Context) (int, error) { return r.Meet(ctx, 2*round) },
			func() int { return r.Stats().Waiters }, func() (ok bool) { other, ok = r.TryMeet(2*round + 1); return ok })
		if met != (err == nil) || met && (v != 2*round+1 || other != 2*round) {
			t.Fatalf("round %d: %d and %d, met %v, error %v", round, v, other, met, err)
		}
	}
}

// TestBarrier_AtTheInstantOfACancel: the phase counts for both parties, or for none.
func TestBarrier_AtTheInstantOfACancel(t *testing.T) {
	t.Parallel()
	b := classic.NewBarrier(2)
	for round := range stressRounds {
		_, passed, err := atOnce(round, b.Wait, func() int { return b.Stats().Waiters }, func() bool {
			last, err := b.Wait(context.Background())
			return last && err == nil
		})
		if passed != (err == nil) || b.Broken() == passed {
			t.Fatalf("round %d: one passed %v, the other %v, broken %v", round, passed, err, b.Broken())
		}
		b.Reset()
	}
}
