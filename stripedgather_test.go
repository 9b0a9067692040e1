package sema

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// These tests start in the middle of an operation, at states that a race reaches only
// by chance.

// wantAtRest fails unless the invariants of stripedlifecycle.go hold.
func wantAtRest(t *testing.T, s *Striped, held int64, gathered bool) {
	t.Helper()
	inCells, demand := int64(0), int64(0)
	for i := range s.cells {
		if isShut := s.cells[i].free.Load() < 0; isShut != gathered {
			t.Errorf("cell %d is shut: %v, want %v", i, isShut, gathered)
		}
		inCells += s.cells[i].count()
	}
	if gathered {
		demand = 1
	}
	if s.gathered.Load() != gathered || s.demand.Load() != demand || s.moves.Load()&1 != 0 {
		t.Errorf("gathered %v, demand %d, moves %d; want %v, %d, even", s.gathered.Load(), s.demand.Load(), s.moves.Load(), gathered, demand)
	}
	c := &s.queue
	if sum := inCells + int64(c.free()) + held; sum != int64(c.capacity+c.debt) {
		t.Errorf("%d in cells, %d in the queue and %d held of capacity %d with debt %d", inCells, c.free(), held, c.capacity, c.debt)
	}
	if !gathered && c.free() > 0 {
		t.Errorf("%d permits are not in cells", c.free())
	}
}

// TestStriped_ScattersAfterEachLifecycleMethod checks that permits return to the cells as
// soon as nothing requires them in the queue.
func TestStriped_ScattersAfterEachLifecycleMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStriped(5)
		wantAtRest(t, s, 0, false)
		s.Resize(20)
		wantAtRest(t, s, 0, false)
		s.Resize(1)
		wantAtRest(t, s, 0, false)
		s.Resize(3)
		a, _ := s.Acquire(t.Context(), 1)
		b, _ := s.Acquire(t.Context(), 1)
		wantAtRest(t, s, 2, false)
		s.Resize(1)
		wantAtRest(t, s, 2, true) // debt
		a.Release()
		wantAtRest(t, s, 1, false)
		s.Resize(0)
		wantAtRest(t, s, 1, true)
		s.Resize(1)
		wantAtRest(t, s, 1, false)
		idle := make(chan error)
		go func() { idle <- s.WaitIdle(t.Context()) }()
		synctest.Wait()
		wantAtRest(t, s, 1, true)
		b.Release()
		<-idle
		wantAtRest(t, s, 0, false)
		s.Drain(t.Context())
		wantAtRest(t, s, 0, true)
		s.Resize(9)
		wantAtRest(t, s, 0, true)
		s.Resume()
		wantAtRest(t, s, 0, false)
		s.Close()
		s.Resume()
		wantAtRest(t, s, 0, true)
	})
}

// TestStriped_PermitInAShutCellIsNotAcquired covers a release that read a demand of 0 and
// puts its permit into a cell that Close has shut.
func TestStriped_PermitInAShutCellIsNotAcquired(t *testing.T) {
	s := NewStriped(2)
	if !s.takeAnywhere() {
		t.Fatal("not free")
	}
	s.Close()
	c := s.home()
	c.free.Add(1) // the first half of put
	if s.takeAnywhere() {
		t.Error("acquired from a shut cell")
	}
	if st := s.Stats(); st.Free != 2 || st.InUse != 0 {
		t.Errorf("%+v", st)
	}
	c.recall()
	c.recall()
	wantAtRest(t, s, 0, true)
	if n := s.queue.free(); n != 2 {
		t.Errorf("%d of 2 permits in the queue", n)
	}
}

// TestStriped_PermitInACellThatOpensIsFree covers the same release when the cells are
// opened again before it recalls the permit.
func TestStriped_PermitInACellThatOpensIsFree(t *testing.T) {
	s := NewStriped(2)
	if !s.takeAnywhere() {
		t.Fatal("not free")
	}
	s.Drain(endedContext)
	c := s.home()
	c.free.Add(1)
	s.Resume()
	c.recall()
	wantAtRest(t, s, 0, false)
}

// TestStriped_ResumeFindsACallerThatIsAboutToQueue covers a caller that searched the cells
// while they were shut and is about to queue.
func TestStriped_ResumeFindsACallerThatIsAboutToQueue(t *testing.T) {
	s := NewStriped(2)
	s.Drain(endedContext)
	s.demand.Add(1)
	if s.takeAnywhere() {
		t.Fatal("granted while draining")
	}
	s.Resume()
	w, v := s.queue.enter(1, nil)
	if v != granted {
		t.Fatalf("status %d, want granted; waiter %v", v, w)
	}
	s.demand.Add(-1)
	s.give()
	wantFree(t, s, 2)
}

// TestStriped_ScatterServesTheQueueWithAReleaseUnderWay covers a release that has put its
// permit into a shut cell. Scatter returns the permit to the queue and must serve the
// waiter, because the release then finds nothing to recall.
func TestStriped_ScatterServesTheQueueWithAReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStriped(1)
		if !s.takeAnywhere() {
			t.Fatal("not free")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.WaitIdle(ctx)
		got := make(chan Permit, 1)
		go func() {
			p, _ := s.Acquire(t.Context(), 1)
			got <- p
		}()
		synctest.Wait()
		c := s.home()
		c.free.Add(1)
		cancel()
		synctest.Wait()
		c.recall()
		synctest.Wait()
		if len(got) == 0 {
			t.Error("not woken although a permit is free")
			s.queue.give(0) // otherwise the bubble never ends
		}
		(<-got).Release()
		wantFree(t, s, 1)
	})
}

// TestStriped_TryRetriesAfterAMove covers a try that searched shut cells and finds the
// queue empty in the middle of a scatter.
func TestStriped_TryRetriesAfterAMove(t *testing.T) {
	s := NewStriped(2)
	s.queue.lock()
	s.gatherLocked()
	s.moves.Add(1)
	free := s.queue.takeUpToLocked(maxCount) // the first half of scatterLocked
	tried := make(chan status)
	go func() { tried <- s.tryTake(false) }()
	time.Sleep(10 * time.Millisecond) // by now it should wait for the lock
	s.queue.word.Add(free)
	s.moves.Add(1)
	s.unlock(wakes{})
	if v := <-tried; v != granted {
		t.Errorf("status %d although permits are free, want granted", v)
	}
}

// TestStriped_GrowthServesTheQueueFirst checks that growth serves a caller that queued
// before it, and that the rest is free.
func TestStriped_GrowthServesTheQueueFirst(t *testing.T) {
	s := NewStriped(0)
	s.demand.Add(1)
	w, v := s.queue.enter(1, nil)
	if v != pending {
		t.Fatalf("status %d, want pending", v)
	}
	s.Resize(3)
	if v := s.queue.park(t.Context(), w, 0); v != granted {
		t.Fatalf("status %d, want granted", v)
	}
	s.demand.Add(-1)
	s.give()
	wantFree(t, s, 3)
}

func wantFree(t *testing.T, s *Striped, n int64) {
	t.Helper()
	if st := s.Stats(); st.Free != n || st.InUse != 0 {
		t.Errorf("%+v", st)
	}
	for range n {
		if !s.takeAnywhere() {
			t.Fatal("a free permit was not found")
		}
	}
}

// TestStriped_CancelThatPaysTheLastDebtScatters covers a caller whose context ended as it
// was granted, so that core.park returns the permit. If that pays the last debt, the
// cells must open.
func TestStriped_CancelThatPaysTheLastDebtScatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStriped(1)
		held, _ := s.Acquire(t.Context(), 1)
		ctx := &endingContext{Context: t.Context(), called: make(chan struct{}), end: make(chan struct{})}
		failed := make(chan error)
		go func() {
			_, err := s.Acquire(ctx, 1)
			failed <- err
		}()
		synctest.Wait()
		ctx.armed.Store(true)
		held.Release()
		<-ctx.called // the caller has the permit
		s.Resize(0)
		if st := s.Stats(); st.Debt != 1 || st.InUse != 1 {
			t.Errorf("%+v", st)
		}
		close(ctx.end)
		if err := <-failed; err != context.Canceled {
			t.Error(err)
		}
		wantAtRest(t, s, 0, false)
	})
}

// An endingContext, once armed, ends when Err is called.
type endingContext struct {
	context.Context
	armed       atomic.Bool
	called, end chan struct{}
}

func (c *endingContext) Err() error {
	if c.armed.CompareAndSwap(true, false) {
		close(c.called)
	}
	select {
	case <-c.called:
		<-c.end
		return context.Canceled
	default:
		return nil
	}
}
