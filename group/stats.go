package group

import (
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/gatestats"
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
	st.Waited, st.WaitTime = int64(w.jobs.added), w.jobs.waits.Total(st.Waiters)
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
