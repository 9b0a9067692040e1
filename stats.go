package sema

import (
	"errors"
	"math"
	"math/bits"
	"time"
)

// Stats is the state of a gate at one instant, and what it has counted. The gates of
// every scope have it, or embed it.
type Stats struct {
	Capacity int64 // the target
	InUse    int64 // permits held; above Capacity by Debt after a shrink
	Free     int64 // permits that could be acquired now if no caller waits
	Debt     int64 // releases to come before the queue is served again
	Waiters  int   // callers that are queued
	Draining bool
	Closed   bool
	Counts
}

// Counts are what a gate has counted since it was created. They only grow. Each call
// counts once, whatever its weight; a call of [AcquireAll] counts at each of its gates.
//
// Calls that fail before they reach the queue for reasons of their own are not
// counted: those with an invalid argument, and those whose context has ended already.
type Counts struct {
	Acquired  int64         // permits granted
	Waited    int64         // acquires that were queued, whatever their end
	TimedOut  int64         // queued acquires that MaxWait ended
	Cancelled int64         // queued acquires that their context ended, or Ticket.Cancel
	Rejected  int64         // acquires that failed with ErrFull, ErrQueueFull, ErrTooLarge, ErrDraining or ErrClosed, queued or not
	WaitTime  time.Duration // how long acquires have been queued in all, those that are queued now included; within a seventh if 32 and more were
}

// Failed counts a call that ended with err, for gates of one's own: queued says
// whether it had to wait. It is not safe for concurrent use. Errors that [Counts] does
// not count change nothing.
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

// tallies are the [Counts] that a core does not have otherwise.
type tallies struct {
	timedOut, cancelled, rejected int64
	notWaited                     int64 // passed through the queue without waiting
}

// count counts a call that ended with v.
func (t *tallies) count(v status) {
	switch v {
	case timedOut:
		t.timedOut++
	case cancelled:
		t.cancelled++
	case full, queueFull, tooLarge, rejectedDraining, closed:
		t.rejected++
	}
}

// Stats returns one exact snapshot.
func (s *Semaphore) Stats() Stats {
	st := s.core.stats()
	st.Acquired = s.issuer.issued()
	return st
}

// stats returns a snapshot without the permits acquired, which a core does not count.
func (c *core) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.payDebt()
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
			Waited:   c.queue.waits.joined(c.queue.n) - c.counts.notWaited,
			TimedOut: c.counts.timedOut, Cancelled: c.counts.cancelled, Rejected: c.counts.rejected,
			WaitTime: c.queue.waitTime(),
		},
	}
}

// tally counts a call that ended with v, with mu held. A Counter that is closed counts
// by itself: what is left in it may still be taken.
func (c *core) tally(v status) {
	if v != closed || !c.keepsLeft {
		c.counts.count(v)
	}
}

// counted counts a call that ended with v, without mu.
func (c *core) counted(v status) {
	c.mu.Lock()
	c.tally(v)
	c.mu.Unlock()
}

// reject counts a call that was rejected for a reason that tally leaves to its caller.
func (c *core) reject() {
	c.mu.Lock()
	c.counts.rejected++
	c.mu.Unlock()
}

// A waitClock counts how many callers are queued and for how long: it integrates the
// length of a queue over time. The mutex of the queue guards it.
//
// It reads the clock when the length changes. Two readings are a fifth of a hand-off,
// so that while a queue is long only every eighth change reads it, and the length since
// the reading before counts as the mean of then and now. The true length differs from
// that by 4 at most.
//
// It is small because it shares a cache line with what a hand-off writes anyway.
type waitClock struct {
	total   time.Duration // until last
	last    int64         // the last reading, since the epoch
	then    int           // length after that reading
	changes uint64        // of the length, by one each
}

const (
	longQueue = 32
	readEvery = 8
)

// change notes that the length changes from one to the other.
func (c *waitClock) change(from, to int) {
	c.changes++
	if from < longQueue || c.changes%readEvery == 0 {
		c.read(from)
		c.then = to
	}
}

// joined returns how many callers were ever queued, if n are now.
func (c *waitClock) joined(n int) int64 { return int64(c.changes+uint64(n)) / 2 }

// read adds up to now. The length has been n of late.
func (c *waitClock) read(n int) {
	now := sinceEpoch()
	// A clock that steps back, at the border of a synctest bubble, adds nothing. After
	// 292 years of waiting in all the sum stays where it is.
	high, low := bits.Mul64(uint64(max(0, now-c.last)), uint64(c.then+n))
	if sum := uint64(c.total) + low/2; high > 0 || sum > math.MaxInt64 {
		c.total = math.MaxInt64
	} else {
		c.total = time.Duration(sum)
	}
	c.last, c.then = now, n
}
