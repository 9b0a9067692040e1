package group

import (
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/gatestats"
	"github.com/sema-go/sema/internal/monotonic"
)

// Stats is the state of a group at one instant, with its counters.
type Stats struct {
	// Stats is that of the gate, as far as this group uses it: InUse are the permits of its
	// functions, Waiters the functions that wait for permits, and the counters are those of
	// functions: Acquired is how many have started. Capacity, Free, Debt and Draining are
	// those of the gate; without a bound, Capacity is [sema.MaxCapacity]. Closed is true
	// after Wait.
	sema.Stats

	Running int64 // functions that run
	Failed  int64 // functions that returned an error or panicked
}

// Stats returns a snapshot. A gate without a method Stats counts as one without a bound.
func (g *Group) Stats() Stats {
	st := Stats{Stats: sema.Stats{Capacity: sema.MaxCapacity, Free: sema.MaxCapacity}}
	if of := gatestats.Of(g.gate); of != nil {
		st.Stats, _ = of()
	}
	w := &g.workers
	w.mu.Lock()
	st.InUse, st.Running, st.Waiters = w.tally.permits, w.tally.running, w.jobs.queue.Len()
	st.Counts = w.tally.Counts
	st.Waited, st.WaitTime = int64(w.jobs.added), w.jobs.waits.read(st.Waiters)
	st.Closed = st.Closed || w.ended
	w.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Failed = g.failures
	return st
}

// String returns the state in one line.
func (g *Group) String() string {
	st := g.Stats()
	return fmt.Sprintf("group: %d running, %d waiting", st.Running, st.Waiters)
}

// A tally counts the functions of a group. The mutex of the workers guards it.
type tally struct {
	sema.Counts       // without Waited and WaitTime
	permits     int64 // of functions that run
	running     int64
}

// started counts a goroutine that starts to run functions under a permit for n.
func (t *tally) started(n int64) {
	t.running++
	t.permits += n
}

// finished counts a goroutine that has run its last function under a permit for n.
func (t *tally) finished(n int64) {
	t.running--
	t.permits -= n
}

// A waitClock adds up how long functions wait, as the length of their queue over time.
// While the queue is long, only every eighth change reads the clock: between two readings,
// the length counts as the mean of those at both.
type waitClock struct {
	total   time.Duration
	last    time.Duration // the last reading, since the epoch of package monotonic
	then    int           // length of the queue after it
	changes uint
}

const (
	longQueue = 32
	readEvery = 8
)

// change notes that the length changes.
func (c *waitClock) change(from, to int) {
	c.changes++
	if from < longQueue || c.changes%readEvery == 0 {
		c.read(from)
		c.then = to
	}
}

// read returns the total until now. n is the length of the queue.
func (c *waitClock) read(n int) time.Duration {
	now := monotonic.Since()
	c.total += max(0, now-c.last) * time.Duration(c.then+n) / 2
	c.last, c.then = now, n
	return c.total
}
