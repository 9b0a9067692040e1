package fleet

import (
	"cmp"
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A call is one Acquire, TryAcquire or lease of a block.
type call struct {
	op     string
	req    protocol.Op
	start  time.Time
	wait   sema.Wait
	queued bool // the wait was reported
	waiter waiter

	// Guarded by session.mu, see tally.
	waits, waited bool
	since         time.Duration
}

// errFailedOpen ends a wait at the store. The caller continues at the local limit.
var errFailedOpen = errors.New("failed open")

// errRecovered ends a wait at the local limit. The caller continues at the store.
var errRecovered = errors.New("the store replies again")

// weight returns the number of permits that the caller needs.
func (c *call) weight() int64 { return cmp.Or(c.req.Least, c.req.Weight) }

// noteQueued reports once that the caller waits.
func (c *call) noteQueued() {
	if !c.queued {
		c.queued = true
		c.wait.Queued()
	}
}

// expectQueue reports that the caller waits if the last known state makes that likely. It
// does so before the caller is queued, so that a slow observer delays no other caller. It
// fails if nothing is granted.
func (s *session) expectQueue(c *call) error {
	if c.req.Try || c.weight() == 0 {
		return nil
	}
	s.mu.Lock()
	err := s.admitsLocked(c.op, c.weight())
	known := s.knownLocked()
	full := s.peer != nil && (known.Waiters > 0 || known.Free < c.weight()) && !s.tooLargeLocked(c.weight())
	s.mu.Unlock()
	if err == nil && full {
		c.noteQueued()
	}
	return err
}

// noteQueuedLate reports the wait of a caller that is already counted as a waiter.
func (s *session) noteQueuedLate(c *call) {
	s.addUncounted(1)
	defer s.addUncounted(-1)
	c.noteQueued()
}

func (s *session) addUncounted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncounted += n
}

// overdue returns the time after which to check the call again, or the error with which its
// wait ends.
func (s *session) overdue(c *call) (left time.Duration, err error) {
	set, waited := s.settings, time.Since(c.start)
	if c.op == "try" { // waits for a reply, not in the queue
		most := set.tryTimeout
		if set.maxWait > 0 {
			most = min(most, set.maxWait)
		}
		if waited >= most {
			return 0, s.unavailableError(c)
		}
		return most - waited, nil
	}
	s.mu.Lock()
	unresponsive := s.driver.unresponsiveForLocked(c.start)
	s.mu.Unlock()
	switch {
	case set.maxWait > 0 && waited >= set.maxWait:
		return 0, s.timeoutError(c)
	case unresponsive >= set.unavailableAfter:
		return 0, s.unavailableError(c)
	case set.maxWait > 0:
		return min(set.unavailableAfter-unresponsive, set.maxWait-waited), nil
	}
	return set.unavailableAfter - unresponsive, nil
}

// issue returns the permit for the caller: p, or a permit that the monitor tracks if the
// semaphore is observed.
func (s *session) issue(c *call, p sema.Permit, err error) (sema.Permit, error) {
	if err != nil || s.monitor == nil || p.Weight() == 0 {
		return p, err
	}
	return c.wait.Leased(&localLease{s, p}), nil
}

// A localLease is a permit of a local semaphore that the monitor tracks.
type localLease struct {
	session *session
	inner   sema.Permit
}

// Name returns the name of the fleet semaphore.
func (l *localLease) Name() string { return l.session.settings.label }

// Release implements [sema.Lease].
func (l *localLease) Release() { l.inner.Release() }

// Split implements [sema.Permit.Split].
func (l *localLease) Split(n int64) (first, rest sema.Lease, err error) {
	a, b, err := l.inner.Split(n)
	if err != nil {
		return nil, nil, err
	}
	return &localLease{l.session, a}, &localLease{l.session, b}, nil
}

// Lost implements [sema.Permit.Lost].
func (l *localLease) Lost() <-chan struct{} { return l.inner.Lost() }

// Err implements [sema.Permit.Err].
func (l *localLease) Err() error { return l.inner.Err() }
