package sema

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestCancelledCompetitorPassesTheWakeUpOn brings about, step by step, what
// only a rare schedule does: the one woken to compete follows a context, and
// the watcher ends that context before the woken one has run.
func TestCancelledCompetitorPassesTheWakeUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands: nobody in line is overdue
		c := core{order: Unfair}
		c.init(1)
		if !c.take(1) {
			t.Fatal("not free")
		}
		done := make(chan struct{})
		var shared []*waiter
		for range followFrom + 4 {
			w, _ := c.enter(1, done)
			shared = append(shared, w)
		}
		patient, _ := c.enter(1, nil)
		for _, w := range shared[:followFrom] { // the watcher among them
			c.leave(t.Context(), w, timedOut)
		}
		followers := shared[followFrom:]
		watcher := followers[len(followers)-1]
		if c.queue.watcher != watcher || <-watcher.token != watchDone || c.queue.followers != 3 {
			t.Fatal("the last follower was not told to watch")
		}
		c.give(1)
		if c.competitor != followers[0] || c.word.Load()&waitingFlag != 0 {
			t.Fatal("the head was not woken to compete")
		}
		c.leave(t.Context(), watcher, cancelled)
		if c.competitor != patient {
			t.Fatal("the wake-up was swallowed")
		}
		for _, w := range followers[:3] {
			if v := w.finalToken(); v != cancelled {
				t.Errorf("a follower was told %d", v)
			}
		}
		if !c.compete(patient) || c.queue.n != 0 || c.inUse() != 1 {
			t.Error("the permit was lost")
		}
	})
}

// TestStripedPutServesWhoBeganToWaitMeanwhile begins in the middle of a
// release that has seen nobody wait.
func TestStripedPutServesWhoBeganToWaitMeanwhile(t *testing.T) {
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
		t.Error("asleep beside a free permit:", err)
	}
}

// TestEdgeThatIsOutdatedWhenToldIsTakenBack begins where an acquire has seen
// the last permit go, and another goroutine has returned one since.
func TestEdgeThatIsOutdatedWhenToldIsTakenBack(t *testing.T) {
	var kinds []EventKind
	s := New(1, Observe(ObserverFunc(func(e Event) { kinds = append(kinds, e.Kind) })))
	s.monitor.edgeTo(true)
	if want := []EventKind{EventExhausted, EventRecovered}; !slices.Equal(kinds, want) {
		t.Errorf("told %v, want %v", kinds, want)
	}
}

// TestWaitersAreRecycledWithoutTokens: a token left in the channel of a waiter
// that is used again would tell its next owner something that is not so.
func TestWaitersAreRecycledWithoutTokens(t *testing.T) {
	c := core{order: Unfair}
	c.init(1)
	c.take(1)
	done := make(chan struct{})
	var line []*waiter
	for range followFrom + 2 {
		w, _ := c.enter(1, done)
		line = append(line, w)
	}
	for _, w := range line[1:followFrom] {
		c.leave(t.Context(), w, timedOut)
	}
	watcher, first, last := line[0], line[followFrom], line[followFrom+1]
	c.leave(t.Context(), watcher, timedOut) // the last follower is told to watch
	c.leave(t.Context(), last, timedOut)    // and leaves, not having listened
	if n := len(last.token); n != 0 {
		t.Errorf("%d tokens left by one who left", n)
	}
	// The other is told too, and then woken to compete; it hears both at once.
	c.give(1)
	if len(first.token) != 2 || c.competitor != first {
		t.Fatalf("%d tokens on their way", len(first.token))
	}
	if !c.compete(first) {
		t.Fatal("a free permit was not taken")
	}
	if n := len(first.token); n != 0 {
		t.Errorf("%d tokens left by one who competed", n)
	}
}
