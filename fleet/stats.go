package fleet

import (
	"errors"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
)

// Stats is a semaphore as this process knows it. It is read without I/O.
type Stats struct {
	// Capacity, InUse, Free, Debt and Draining are those of all machines, as the store
	// last replied; Waiters, Closed and the counters are those of this process. Permits
	// that a pool of this process has ready are not in use.
	sema.Stats

	Held       int64 // permits of the store that this process holds
	Blocks     int64 // permits that the pool of this process has, held or not
	FailedOpen bool  // the local limit applies, see [FailOpen]
	HeldOpen   int64 // permits of the local limit that are held
	Exchanges
}

// Exchanges counts what this process has exchanged with the store about a semaphore.
type Exchanges struct {
	Batches       int64 // sent, heartbeats included
	Failures      int64 // exchanges without a reply in time
	Notifications int64 // received from the store
	Grants        int64 // leases, or blocks
	Releases      int64 // of leases, or of parts of blocks
	Unconfirmed   int64 // releases that the store had not confirmed when their session ended
	Sessions      int64 // opened
	SessionsLost  int64
	Panics        int64 // of observers that were called for no caller
}

// Stats returns one snapshot.
func (s *Semaphore) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Stats: s.knownLocked(), Held: s.strategy.held(), Blocks: s.strategy.usage().blocks,
		FailedOpen: s.failOpen.applies(), HeldOpen: s.failOpen.stats().InUse, Exchanges: s.counts,
	}
	stats.Counts, stats.Panics = s.countsLocked(), s.events.panicked()
	return stats
}

// knownLocked returns what is known of the semaphore, but for its counters.
func (s *session) knownLocked() sema.Stats {
	capacity, inUse := s.capacity.Load(), max(0, s.inUse.Load()-s.strategy.usage().ready)
	return sema.Stats{
		Capacity: capacity, InUse: inUse, Free: max(0, capacity-inUse), Debt: max(0, inUse-capacity), Waiters: s.waiting(),
		Draining: s.draining(), Closed: s.closed,
	}
}

// A tally counts calls. The mutex of the semaphore guards it.
type tally struct {
	sema.Counts
	queued int           // calls that are queued now
	since  time.Duration // sum of when they were queued, since epoch
}

// epoch is what the times of a tally are relative to.
var epoch = time.Now()

// queue counts a call that is queued from now on.
func (t *tally) queue(c *call) {
	if c == nil || c.waits {
		return
	}
	if !c.waited {
		t.Waited++
	}
	c.waits, c.waited, c.since = true, true, time.Since(epoch)
	t.queued++
	t.since += c.since
}

// unqueue counts the time of a call that is queued no longer.
func (t *tally) unqueue(c *call) {
	if c == nil || !c.waits {
		return
	}
	c.waits = false
	t.queued--
	t.since -= c.since
	t.WaitTime += time.Since(epoch) - c.since
}

// fail counts a call that ended with an error.
func (s *session) fail(c *call, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Failed(err, c.waited)
}

// countsLocked returns the counters. Permits of a pool and of the local limit are
// counted by their semaphores, at no cost.
func (s *session) countsLocked() sema.Counts {
	counts := s.tally.Counts
	counts.WaitTime += time.Duration(s.tally.queued)*time.Since(epoch) - s.tally.since
	counts.Acquired = s.strategy.usage().acquired + s.failOpen.stats().Acquired
	return counts
}
