package wfq

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
)

// Stats is the state of a class. Capacity is its Max, or the capacity of the queue.
type Stats struct {
	sema.Stats
	Share      Share
	QueuedFor  time.Duration // age of the oldest waiter; 0: none
	QueuedSize int64         // weight of all waiters
	MeanHold   time.Duration // how long the class holds a permit, estimated while callers wait; 0: unknown
}

// Stats returns the state of the queue, with the counters of all classes.
func (q *Queue) Stats() sema.Stats {
	q.lock()
	defer q.unlock()
	st := q.statsLocked()
	for c := range q.names.all {
		st.Acquired += c.acquired()
	}
	return st
}

// acquired returns the number of permits ever granted.
func (c *class) acquired() int64 { return c.issuer.Issued() + c.leased.Load() }

// statsLocked returns the state without the permits granted by the classes, of which there
// may be many.
func (q *Queue) statsLocked() sema.Stats {
	st := sema.Stats{
		Capacity: q.capacity, InUse: q.capacity - q.free, Free: max(0, q.free), Debt: max(0, -q.free),
		Waiters: q.waiters, Draining: q.phase == draining, Closed: q.phase == closed, Counts: q.counts,
	}
	st.WaitTime += time.Duration(int64(q.waiters)*q.now - q.arrivals)
	return st
}

// Stats returns the state of the class. [Class.Details] returns more.
func (c *Class) Stats() sema.Stats { return c.class.Stats() }

// Details returns the state of the class with its share, as [Queue.Classes] does.
func (c *Class) Details() Stats { return c.class.details() }

// Stats implements [Class.Stats].
func (c *class) Stats() sema.Stats { return c.details().Stats }

// details returns the statistics of the class.
func (c *class) details() Stats {
	c.q.lock()
	defer c.q.unlock()
	return c.detailsLocked()
}

func (c *class) detailsLocked() Stats {
	q := c.q
	inUse, capacity := c.inUse.Load(), min(q.capacity, c.limit.Load())
	st := Stats{
		Stats: sema.Stats{
			Capacity: capacity, InUse: inUse, Free: max(0, min(q.free, capacity-inUse)), Debt: max(0, inUse-capacity),
			Waiters: c.waiters, Draining: q.phase == draining, Closed: q.phase == closed, Counts: c.counts,
		},
		Share: c.share, QueuedSize: c.queued,
	}
	st.Acquired = c.acquired()
	st.WaitTime += time.Duration(int64(c.waiters)*q.now - c.arrivals)
	if oldest := c.oldestLocked(); oldest != nil {
		st.QueuedFor = time.Duration(q.now - oldest.since)
	}
	if c.hold.permits > 0 {
		st.MeanHold = time.Duration(c.hold.work / c.hold.permits)
	}
	return st
}

// ExpectedWait estimates how long a caller of n permits would wait, for a Retry-After and
// to reject callers whose deadline is earlier. It is 0 if they are free or nothing is known
// yet, and math.MaxInt64 if they can never be granted or the queue is paused.
func (c *Class) ExpectedWait(n int64) time.Duration {
	c.class.q.lock()
	defer c.class.q.unlock()
	return c.class.expectedWaitLocked(n)
}

// expectedWaitLocked divides the weight of those ahead by the rate at which permits return,
// which is the capacity over the mean hold. Ahead are all waiters of higher tiers, and of the
// own tier those that are served before the own class has had its share.
func (c *class) expectedWaitLocked(n int64) time.Duration {
	q := c.q
	limit := c.limit.Load()
	if n <= 0 {
		return 0
	}
	if n > min(limit, q.capacity) {
		return math.MaxInt64
	}
	if q.waiters == 0 && n <= q.free && c.inUse.Load()+n <= limit {
		return 0
	}
	own := float64(c.queued + n)
	weight := c.tier.weight
	if c.heap == nil {
		weight += float64(c.share.Weight)
	}
	ahead := min(float64(c.tier.queued+n), own*weight/float64(c.share.Weight))
	for _, t := range q.tiers {
		if t.level > c.tier.level {
			ahead += float64(t.queued)
		}
	}
	ns := max(ahead*q.hold.mean(0)/float64(q.capacity), own*c.meanLocked()/float64(min(limit, q.capacity)))
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// String returns the name and the state in one line.
func (q *Queue) String() string {
	st := q.Stats()
	return describe.Usage("fair queue", q.settings.Name, st.InUse, st.Capacity, st.Waiters, describe.State(st.Closed, st.Draining))
}

// GoString returns the same as String.
func (q *Queue) GoString() string { return q.String() }

// LogValue implements [slog.LogValuer].
func (q *Queue) LogValue() slog.Value { return slog.StringValue(q.String()) }

// String returns the names of the queue and the class, and the state, in one line.
func (c *Class) String() string {
	st := c.Stats()
	return describe.Usage("class", c.Name(), st.InUse, st.Capacity, st.Waiters, fmt.Sprintf("of %s", describe.Title("fair queue", c.class.q.settings.Name)), describe.State(st.Closed, st.Draining))
}

// GoString returns the same as String.
func (c *Class) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer].
func (c *Class) LogValue() slog.Value { return slog.StringValue(c.String()) }
