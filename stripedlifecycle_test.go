package sema_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// TestStriped_ReportsTheLifecycleOfASemaphore checks that every lifecycle method reports
// the same events for both types. The model compares the figures.
func TestStriped_ReportsTheLifecycleOfASemaphore(t *testing.T) {
	script := func(t *testing.T, s lifecycleGate) {
		step := func(f func()) { f(); synctest.Wait() }
		var held []sema.Permit
		for range 3 {
			step(func() { held = append(held, mustAcquire(t, s, 1)) })
		}
		waiting := acquiring(t.Context(), s, 1)
		step(func() {})
		step(func() { s.Resize(4) })
		step((<-waiting).permit.Release)
		step(func() { s.Resize(1) })
		step(func() { s.TryAcquire(t.Context(), 1) })
		for _, p := range held {
			step(p.Release)
		}
		step(func() { s.Resize(0) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		step(func() { s.Acquire(ctx, 1) })
		cancel()
		step(func() { s.Resize(2) })
		held = append(held[:0], mustAcquire(t, s, 1))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		step(func() { s.Drain(ctx) })
		cancel()
		step(func() { s.Acquire(t.Context(), 1) })
		step(func() { s.Acquire(t.Context(), 0) })
		step(s.Resume)
		step(func() { s.Close() })
		step(func() { s.Close() })
		step(func() { s.TryAcquire(t.Context(), 1) })
		step(held[0].Release)
		step(func() { s.WaitIdle(t.Context()) })
	}
	synctest.Test(t, func(t *testing.T) {
		var want, got journal
		script(t, sema.New(3, sema.Name("db"), sema.Observe(&want)))
		script(t, sema.NewStriped(3, sema.Name("db"), sema.Observe(&got)))
		all, others := want.take(), got.take()
		for i := range min(len(all), len(others)) {
			a, b := all[i], others[i]
			if a.Kind != b.Kind || a.Waiters != b.Waiters || a.Capacity != b.Capacity || a.Name != b.Name || sema.Reason(a.Err) != sema.Reason(b.Err) {
				t.Errorf("event %d: %+v, a semaphore reports %+v", i, b, a)
			}
		}
		if len(all) != len(others) {
			t.Errorf("%d events, a semaphore reports %d", len(others), len(all))
		}
	})
}

func TestStriped_CapacityMayBeZeroOrUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewStriped(0)
		_, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		waiting := acquiring(t.Context(), s, 1)
		synctest.Wait()
		if isDone(waiting) {
			t.Fatal("a paused semaphore granted a permit")
		}
		s.Resize(sema.MaxCapacity + 1)
		(<-waiting).permit.Release()
		if st := s.Stats(); st.Capacity != sema.MaxCapacity || st.Free != sema.MaxCapacity || st.InUse != 0 {
			t.Errorf("%+v", st)
		}
		if st := sema.NewStriped(sema.MaxCapacity + 1).Stats(); st.Capacity != sema.MaxCapacity || st.Free != sema.MaxCapacity {
			t.Errorf("%+v", st)
		}
		s.Resize(0)
		if st := s.Stats(); st.Capacity != 0 || st.Free != 0 || st.InUse != 0 || st.Debt != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestStriped_DrainWaitsForHeldPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewStriped(5, sema.Name("db"))
		wantErr(t, s.Drain(t.Context()), nil)
		s.Resume()
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Drain(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), `"db"`) || !strings.Contains(err.Error(), "2 of 5 permits are still held") {
			t.Error(err)
		}
		if st := s.Stats(); !st.Draining || st.InUse != 2 || st.Free != 3 {
			t.Errorf("%+v", st)
		}
		drained := make(chan error, 1)
		drain := func() { drained <- s.Drain(t.Context()) }
		go drain()
		synctest.Wait()
		s.Resume()
		if err := <-drained; err == nil || !strings.Contains(err.Error(), "resumed") {
			t.Error(err)
		}
		mustAcquire(t, s, 1).Release()
		go drain()
		synctest.Wait()
		a.Release()
		synctest.Wait()
		if len(drained) > 0 {
			t.Fatal("drained while a permit is held")
		}
		s.Close()
		s.Resume() // a closed semaphore stays closed
		synctest.Wait()
		if len(drained) > 0 || !s.Stats().Closed {
			t.Fatal("a closed semaphore was resumed")
		}
		b.Release()
		wantErr(t, <-drained, nil)
		wantErr(t, s.WaitIdle(t.Context()), nil)
	})
}

func TestStriped_WaitIdleRejectsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewStriped(2)
		wantErr(t, s.WaitIdle(t.Context()), nil)
		a := mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, s.WaitIdle(ctx), context.DeadlineExceeded)
		idle := make(chan error, 2)
		for range 2 {
			go func() { idle <- s.WaitIdle(t.Context()) }()
		}
		synctest.Wait()
		b := mustAcquire(t, s, 1)
		a.Release()
		synctest.Wait()
		if len(idle) > 0 {
			t.Fatal("idle while a permit is held")
		}
		b.Release()
		wantErr(t, <-idle, nil)
		wantErr(t, <-idle, nil)
	})
}
