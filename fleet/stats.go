package fleet

import (
	"errors"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
)

// Stats is the state of a semaphore as this process knows it. Reading it needs no I/O.
type Stats struct {
	// Capacity, InUse, Free, Debt and Draining are those of all machines, from the last
	// reply of the store. Waiters, Closed and the counters are those of this process.
	// Unused permits in the pool of this process do not count as in use.
	sema.Stats

	Held       int64 // permits that this process holds, without HeldOpen
	Blocks     int64 // permits that the pool of this process has leased, held or not
	FailedOpen bool  // the local limit applies, see [FailOpen]
	HeldOpen   int64 // permits of the local limit that this process holds
	Exchanges
}

// Exchanges counts the exchanges of this process with the store about a semaphore.
type Exchanges struct {
	Batches       int64 // sent, heartbeats included
	Failures      int64 // exchanges without a reply in time
	Notifications int64 // received from the store
	Grants        int64 // of leases or blocks
	Releases      int64 // of leases, or of parts of blocks
	Unconfirmed   int64 // releases that the store had not confirmed when their session ended
	Sessions      int64 // opened
	SessionsLost  int64
	Panics        int64 // of observers that were not called by a caller's goroutine

	Heartbeats       int64         // batches without operations, which renew and receive, that were confirmed
	HeartbeatsFailed int64         // batches without operations that got no reply in time, or whose session had ended
	ExchangeTime     time.Duration // total time of the batches, replied to or not
	Lost             Losses        // leases lost while their permits were held
}

// Losses counts lost leases by reason. The held permits of a pool count as one lease for
// each time that they are lost.
type Losses struct {
	Expired   int64 // the session was not renewed in time
	Forgotten int64 // the store did not have the session any more
	Revoked   int64 // by an operator
	Closed    int64 // the client was closed while the permits were held
}

// countLost counts a lost lease. The session's mutex must be held.
func (e *Exchanges) countLost(why string) {
	switch why {
	case reasonNotRenewed:
		e.Lost.Expired++
	case errUnknownSession.Error():
		e.Lost.Forgotten++
	case reasonClosed:
		e.Lost.Closed++
	default:
		e.Lost.Revoked++
	}
}

// countHeartbeat counts the result of a batch that only renewed. The session's mutex must
// be held.
func (e *Exchanges) countHeartbeat(confirmed bool) {
	if confirmed {
		e.Heartbeats++
	} else {
		e.HeartbeatsFailed++
	}
}

// Stats returns a snapshot.
func (s *Semaphore) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Stats: s.knownLocked(), Held: s.strategy.heldLocked(), Blocks: s.strategy.usageLocked().blocks,
		FailedOpen: s.failOpen.applies(), HeldOpen: s.failOpen.stats().InUse, Exchanges: s.counts,
	}
	stats.Counts, stats.Panics = s.countsLocked(), s.events.panicked()
	return stats
}

// knownLocked returns the last known state without the counters.
func (s *session) knownLocked() sema.Stats {
	capacity, inUse := s.capacity.Load(), max(0, s.inUse.Load()-s.strategy.usageLocked().ready)
	return sema.Stats{
		Capacity: capacity, InUse: inUse, Free: max(0, capacity-inUse), Debt: max(0, inUse-capacity), Waiters: s.waitingLocked(),
		Draining: s.drainingLocked(), Closed: s.closed,
	}
}

// A tally counts calls. The session's mutex guards it.
type tally struct {
	sema.Counts
	queued int           // calls that are queued now
	since  time.Duration // sum of their start times, relative to epoch
}

// epoch is the origin of the times of a tally.
var epoch = time.Now()

// queue counts a call that starts to wait.
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

// unqueue adds the wait time of a call that stops waiting.
func (t *tally) unqueue(c *call) {
	if c == nil || !c.waits {
		return
	}
	c.waits = false
	t.queued--
	t.since -= c.since
	t.WaitTime += time.Since(epoch) - c.since
}

// countFailure counts a call that ended with an error.
func (s *session) countFailure(c *call, err error) {
	if errors.Is(err, fs.ErrNotExist) || isDenial(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Failed(err, c.waited)
}

// countsLocked returns the counters. The local semaphores of a pool and of the local limit
// count their permits themselves, at no cost.
func (s *session) countsLocked() sema.Counts {
	counts := s.tally.Counts
	counts.WaitTime += time.Duration(s.tally.queued)*time.Since(epoch) - s.tally.since
	counts.Acquired = s.strategy.usageLocked().acquired + s.failOpen.stats().Acquired
	return counts
}
