package sema

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestCore_CancelledCompetitorPassesTheWakeUpOn reproduces a rare schedule step by
// step: the waiter woken to compete follows a context, and the watcher ends that
// context before the woken waiter runs.
func TestCore_CancelledCompetitorPassesTheWakeUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still, so no waiter is overdue
		c := core{order: Unfair}
		c.init(1)
		if !c.take(1) {
			t.Fatal("not free")
		}
		done := make(chan struct{})
		var shared []*waiter
		for range followThreshold + 4 {
			w, _ := c.enter(1, done)
			shared = append(shared, w)
		}
		waiting, _ := c.enter(1, nil)
		for _, w := range shared[:followThreshold] { // including the watcher
			c.leave(t.Context(), w, timedOut)
		}
		followers := shared[followThreshold:]
		watcher := followers[len(followers)-1]
		if c.queue.watcher != watcher || <-watcher.token != watchDone || c.queue.followers != 3 {
			t.Fatal("the last follower was not notified to watch")
		}
		c.give(1)
		if c.competitor != followers[0] || c.word.Load()&waitingFlag != 0 {
			t.Fatal("the head was not woken to compete")
		}
		c.leave(t.Context(), watcher, cancelled)
		if c.competitor != waiting {
			t.Fatal("the wake-up was lost")
		}
		for _, w := range followers[:3] {
			if v := w.finalToken(); v != cancelled {
				t.Errorf("a follower got status %d, want cancelled", v)
			}
		}
		if !c.compete(waiting) || c.queue.n != 0 || c.inUseLocked() != 1 {
			t.Error("the permit was lost")
		}
	})
}

// TestStriped_PutServesACallerThatBeganToWait starts in the middle of a release, after
// it found that no caller waits.
func TestStriped_PutServesACallerThatBeganToWait(t *testing.T) {
	s := NewStriped(1)
	if !s.takeAnywhere() {
		t.Fatal("not free")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		p, err := s.Acquire(ctx, 1)
		p.Release()
		got <- err
	}()
	for s.Stats().Waiters == 0 {
		time.Sleep(time.Millisecond)
	}
	s.home().put()
	if err := <-got; err != nil {
		t.Error("not woken although a permit is free:", err)
	}
}

// TestMonitor_OutdatedTransitionIsCorrected starts after an acquire has seen the last
// permit taken, and another goroutine has released one since.
func TestMonitor_OutdatedTransitionIsCorrected(t *testing.T) {
	var kinds []EventKind
	s := New(1, Observe(ObserverFunc(func(e Event) { kinds = append(kinds, e.Kind) })))
	s.monitor.reportTransitionTo(true)
	if want := []EventKind{EventExhausted, EventRecovered}; !slices.Equal(kinds, want) {
		t.Errorf("reported %v, want %v", kinds, want)
	}
}

// TestWaiter_IsRecycledWithoutTokens checks that recycled waiters have empty channels: a
// token left in one would give the next owner a wrong status.
func TestWaiter_IsRecycledWithoutTokens(t *testing.T) {
	c := core{order: Unfair}
	c.init(1)
	c.take(1)
	done := make(chan struct{})
	var waiters []*waiter
	for range followThreshold + 2 {
		w, _ := c.enter(1, done)
		waiters = append(waiters, w)
	}
	for _, w := range waiters[1:followThreshold] {
		c.leave(t.Context(), w, timedOut)
	}
	watcher, first, last := waiters[0], waiters[followThreshold], waiters[followThreshold+1]
	c.leave(t.Context(), watcher, timedOut) // the last follower is notified to watch
	c.leave(t.Context(), last, timedOut)    // and leaves without having received that
	if n := len(last.token); n != 0 {
		t.Errorf("%d tokens left by a waiter that left", n)
	}
	// The other follower is notified too, and then woken to compete. It receives both
	// tokens at once.
	c.give(1)
	if len(first.token) != 2 || c.competitor != first {
		t.Fatalf("%d tokens in flight", len(first.token))
	}
	if !c.compete(first) {
		t.Fatal("a free permit was not taken")
	}
	if n := len(first.token); n != 0 {
		t.Errorf("%d tokens left by a waiter that competed", n)
	}
}
