package sema

import "testing"

// TestCancelledCompetitorPassesTheWakeUpOn brings about, step by step, what
// only a rare schedule does: the one woken to compete follows a context, and
// the watcher ends that context before the woken one has run.
func TestCancelledCompetitorPassesTheWakeUpOn(t *testing.T) {
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
	if c.line.watcher != watcher || <-watcher.token != watchDone || c.line.followers != 3 {
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
	if !c.compete(patient) || c.line.n != 0 || c.inUse() != 1 {
		t.Error("the permit was lost")
	}
}
