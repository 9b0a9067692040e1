package pool

import (
	"fmt"
	"log/slog"

	"github.com/sema-go/sema"
)

// Stats is the state of a pool at one instant, with its counters.
type Stats struct {
	// Stats is that of the pool's semaphore. InUse are the permits held: of callers that
	// have an item, wait for one, or have kept one. Waiters are the callers that wait for a
	// permit.
	sema.Stats

	Open     int64 // the sum of the following six; at most Size
	Idle     int64 // items that wait for a caller
	Lent     int64 // items that callers use
	Kept     int64 // items that were kept and whose permits are not released
	Opening  int64 // calls of Open in progress
	Checking int64 // calls of Check in progress
	Closing  int64 // calls of Close in progress
	Pending  int64 // callers that have a permit and wait for an item

	Totals
}

// Totals are the counters of a pool since it was created. They only grow. A pool that
// works opens few items for many that it lends: compare Opens with Acquired.
type Totals struct {
	Opens       int64 // items opened
	OpenErrors  int64 // calls of Open that failed
	Closes      int64 // items closed, for any reason
	Expired     int64 // items closed because of MaxIdleTime, MaxLifetime or Reset after their use
	Discards    int64 // items closed by Discard
	Keeps       int64 // items that left the pool by Keep
	Checks      int64 // calls of Check
	CheckErrors int64 // items closed because Check failed
}

// counts are the counters of a pool. Pool.mu guards them.
type counts struct {
	open                             int64 // includes all of the following
	opening, checking, closing, kept int64
	Totals
}

// Stats returns a snapshot.
func (p *Pool[T]) Stats() Stats {
	p.lock()
	defer p.unlock()
	c := &p.counts
	idle := int64(p.idleLocked())
	return Stats{
		Stats: p.own.Stats(),
		Open:  c.open, Idle: idle, Lent: c.open - idle - c.opening - c.checking - c.closing - c.kept, Kept: c.kept,
		Opening: c.opening, Checking: c.checking, Closing: c.closing, Pending: int64(p.requests.Len()), Totals: c.Totals,
	}
}

// String returns the name and the state in one line.
func (p *Pool[T]) String() string {
	st := p.Stats()
	text := fmt.Sprintf("pool %q: %d of %d open, %d idle, %d waiting", p.name, st.Open, st.Capacity, st.Idle, int64(st.Waiters)+st.Pending)
	switch {
	case st.Closed:
		return text + ", closed"
	case st.Draining:
		return text + ", draining"
	}
	return text
}

// GoString returns the same as String.
func (p *Pool[T]) GoString() string { return p.String() }

// LogValue implements [slog.LogValuer].
func (p *Pool[T]) LogValue() slog.Value { return slog.StringValue(p.String()) }
