package sema

import (
	"errors"
	"time"
)

// Stats is the state of a gate at one instant, with its counters. The gates of every
// scope return it, or a type that embeds it.
type Stats struct {
	Capacity int64 // the target, set by the constructor, Resize and Forget
	InUse    int64 // permits held; exceeds Capacity by Debt after a shrink
	Free     int64 // permits that can be acquired now if no caller waits
	Debt     int64 // permits to be released before the queue is served again
	Waiters  int   // queued callers
	Draining bool
	Closed   bool
	Counts
}

// Counts are the counters of a gate since it was created. They only grow. Each call
// counts once, whatever its weight; a call of [AcquireAll] counts at each of its gates.
//
// Calls that fail before they reach the queue, because of an invalid argument or a
// context that has already ended, are not counted.
type Counts struct {
	Acquired  int64         // permits granted
	Waited    int64         // acquires that were queued, whatever their result
	TimedOut  int64         // queued acquires ended by MaxWait
	Cancelled int64         // queued acquires ended by their context or by Ticket.Cancel
	Rejected  int64         // acquires that failed with ErrFull, ErrQueueFull, ErrTooLarge, ErrDraining or ErrClosed, queued or not
	WaitTime  time.Duration // total time of acquires in the queue, including those queued now; off by at most a seventh if 32 or more were queued at once
}

// Failed counts a call that ended with err, for a user's own gate. queued states whether
// the call had to wait. Errors that [Counts] does not count change nothing. Failed is
// not safe for concurrent use.
func (c *Counts) Failed(err error, queued bool) {
	switch {
	case errors.Is(err, ErrTimeout):
		if queued {
			c.TimedOut++
		}
	case errors.Is(err, ErrFull), errors.Is(err, ErrTooLarge), errors.Is(err, ErrDraining), errors.Is(err, ErrClosed):
		c.Rejected++
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable), errors.Is(err, ErrLost), errors.Is(err, ErrOverRelease):
	case err != nil && queued:
		c.Cancelled++
	}
}

// callCounts are those [Counts] that a core does not derive from other fields.
type callCounts struct {
	timedOut, cancelled, rejected int64
	notWaited                     int64 // entered the queue without waiting
}

// count counts a call that ended with v.
func (t *callCounts) count(v status) {
	switch v {
	case timedOut:
		t.timedOut++
	case cancelled:
		t.cancelled++
	case full, queueFull, tooLarge, rejectedDraining, closed:
		t.rejected++
	}
}

// Stats returns an exact snapshot.
func (s *Semaphore) Stats() Stats {
	st := s.core.stats()
	st.Acquired = s.issuer.Issued()
	return st
}

// stats returns a snapshot without Acquired, which a core does not count.
func (c *core) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.payDebtLocked()
	free := c.free()
	return Stats{
		Capacity: int64(c.capacity),
		InUse:    int64(c.capacity + c.debt - free),
		Free:     int64(free),
		Debt:     int64(c.debt),
		Waiters:  c.queue.n,
		Draining: c.phase == draining,
		Closed:   c.phase == shut,
		Counts: Counts{
			Waited:   c.queue.waits.Joined(c.queue.n) - c.counts.notWaited,
			TimedOut: c.counts.timedOut, Cancelled: c.counts.cancelled, Rejected: c.counts.rejected,
			WaitTime: c.queue.waits.Total(c.queue.n),
		},
	}
}

// countLocked counts a call that ended with v. A closed Counter counts rejections
// itself, because what is left in it can still be taken.
func (c *core) countLocked(v status) {
	if v != closed || !c.takeAfterClose {
		c.counts.count(v)
	}
}

// count locks mu and counts a call that ended with v.
func (c *core) count(v status) {
	c.mu.Lock()
	c.countLocked(v)
	c.mu.Unlock()
}

// countRejected counts a rejected call that countLocked leaves to its caller.
func (c *core) countRejected() {
	c.mu.Lock()
	c.counts.rejected++
	c.mu.Unlock()
}
