package rate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/monotonic"
)

// Stats returns the state of the gate. Capacity is the burst, Free what can be acquired
// now, InUse what has yet to return, and Debt what was charged beyond the burst.
func (g *Gate) Stats() sema.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.advanceLocked()
	b := &g.bucket
	st := sema.Stats{
		Capacity: b.burst, Free: max(0, b.free), InUse: b.burst - b.free, Debt: max(0, -b.free),
		Waiters: g.queue.Len(), Draining: g.phase == draining, Closed: g.phase == closed, Counts: g.counts,
	}
	st.WaitTime = g.waits.total(g.queue.Len(), at)
	return st
}

// A waitClock adds up how long callers have been queued: the length of the queue
// integrated over time.
type waitClock struct{ sum, at int64 }

// change notes that the length of the queue is about to change.
func (c *waitClock) change(n int, at int64) {
	c.sum += int64(n) * (at - c.at)
	c.at = at
}

// total returns the sum, with the callers that are queued now.
func (c *waitClock) total(n int, at int64) time.Duration {
	return time.Duration(c.sum + int64(n)*(at-c.at))
}

// A clock is monotonic time in ns that never steps back.
type clock struct{ last, skew int64 }

// read returns the time. That of the runtime steps back when a gate enters a
// testing/synctest bubble, where the year is 2000. Then the clock continues from its last
// reading.
func (c *clock) read() int64 {
	at := now() + c.skew
	if at < c.last {
		c.skew += c.last - at
		at = c.last
	}
	c.last = at
	return at
}

// at returns the time, given a reading of now from before the gate was locked. If it is
// far behind, the gate has entered a bubble, or the caller has waited for the lock: another
// reading decides. Small steps back come from callers that overtook each other, and must
// not add up.
func (c *clock) at(reading int64) int64 {
	at := reading + c.skew
	if at < c.last-int64(time.Second) {
		return c.read()
	}
	c.last = max(c.last, at)
	return c.last
}

// now returns the time in ns.
func now() int64 { return int64(monotonic.Since()) }

// Drain rejects waiters and new acquires with [sema.ErrDraining]. Nothing is held, so it
// does not wait.
func (g *Gate) Drain(ctx context.Context) error {
	if ctx == nil {
		return g.fault("drain", 0, sema.ErrInvalid, "nil context")
	}
	g.end(draining, sema.ErrDraining)
	g.monitor.Report(sema.Event{Kind: sema.EventDrained})
	return nil
}

// Resume ends a drain. A closed gate stays closed.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == draining {
		g.phase = open
	}
}

// Close rejects waiters and new acquires with [sema.ErrClosed], for good. It always
// returns nil.
func (g *Gate) Close() error {
	if g.end(closed, sema.ErrClosed) {
		g.monitor.Report(sema.Event{Kind: sema.EventClosed})
	}
	return nil
}

// end rejects all callers, and reports whether the gate was in another phase.
func (g *Gate) end(p phase, why error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase >= p {
		return false
	}
	g.phase = p
	g.rejectLocked(why, func(*waiter) bool { return true })
	return true
}

// String returns the name, the rate and the state in one line.
func (g *Gate) String() string {
	st := g.Stats()
	n, per, burst := g.Rate()
	text := fmt.Sprintf("rate %q: %d per %v, burst %d, %d free, %d waiting", g.settings.Name, n, per, burst, st.Free, st.Waiters)
	switch {
	case st.Closed:
		return text + ", closed"
	case st.Draining:
		return text + ", draining"
	}
	return text
}

// GoString returns the same as String.
func (g *Gate) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer].
func (g *Gate) LogValue() slog.Value { return slog.StringValue(g.String()) }
