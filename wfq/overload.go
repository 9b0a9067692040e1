package wfq

import "time"

// An overload detects that a class has a standing queue, as CoDel does: throughout an
// interval, the oldest waiter had waited for longer than the target. A queue that only
// absorbs bursts is short at some time in every interval.
type overload struct {
	end   int64 // of the interval, in ns
	least int64 // least age of the oldest waiter in the interval
	on    bool
}

const (
	overloadInterval = int64(100 * time.Millisecond)
	overloadTarget   = int64(5 * time.Millisecond)
	shedAfter        = 2 * overloadTarget
)

// served records that a waiter is served, and the age of the oldest.
func (o *overload) served(now, oldest int64) {
	if now < o.end {
		o.least = min(o.least, oldest)
		return
	}
	o.on = o.least > overloadTarget
	o.end, o.least = now+overloadInterval, oldest
}

// emptied records that no caller waits.
func (o *overload) emptied() { o.least = 0 }

// shedsLocked reports whether the order of the class sheds w instead of serving it.
func (c *class) shedsLocked(w *waiter) bool {
	if c.share.Order < CoDel {
		return false
	}
	was := c.overload.on
	c.overload.served(c.q.now, c.q.now-c.oldestLocked().since)
	if c.share.Order == AdaptiveLIFO && was != c.overload.on {
		c.placeLocked() // another waiter is next
	}
	return c.share.Order == CoDel && c.overload.on && c.q.now-w.since > shedAfter
}
