// Package meter measures semaphores from the batches and replies that pass through a server:
// acquires by result, waits, holds, lost leases and renewals. It sees what all clients of the
// server do, whatever protocol they use, because each of them ends in batches of the store.
//
// It has no clock and does no I/O: its callers pass the time.
//
// Memory is bounded. A semaphore with open acquires or leases has a tracker, which is dropped
// when it is idle; the limits of the server bound how many there are. Its figures are kept in a
// [Series]. Declared semaphores always have one of their own. Of the others, the most recently
// active have one, up to a limit; the rest share one, see [Meter.Folded]. The limit is divided
// among the identities that own semaphores: one with fewer series than another takes over series
// of that one, until they have equally many.
package meter

import (
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// idleSeries is how long a semaphore must be unused before another one may get its series. So
// the names that a scraper sees change slowly, however many names clients use.
const idleSeries = 10 * time.Minute

// A Meter measures any number of semaphores. It is safe for concurrent use.
type Meter struct {
	limit    int
	declared func(name string) bool
	owner    func(name string) string

	mu       sync.Mutex
	trackers map[string]*tracker
	series   map[string]*Series
	others   int            // series of semaphores that are not declared
	owned    map[string]int // the same, by owner; no zeros
	folded   *Series        // shared by semaphores without a series of their own
	replaced uint64         // series that were dropped for another semaphore
	scanned  time.Time
}

// New returns a meter that gives at most limit undeclared semaphores a series of their own. owner
// returns the identity to which an undeclared semaphore counts. It must not call the meter.
func New(limit int, declared func(name string) bool, owner func(name string) string) *Meter {
	return &Meter{
		limit: limit, declared: declared, owner: owner, trackers: map[string]*tracker{}, series: map[string]*Series{}, owned: map[string]int{},
		folded: newSeries(FoldedName, "", true, time.Time{}),
	}
}

// FoldedName is the name of the series of all semaphores without their own. No semaphore can have
// this name, because names contain no braces.
const FoldedName = "{other}"

// Declare creates the series of a declared semaphore, so that it exists before its first use. The
// state is that of the semaphore until the store has it.
func (m *Meter) Declare(name string, state State, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[name] == nil {
		s := newSeries(name, "", true, now)
		s.initial, s.state = state, state
		m.series[name] = s
	}
}

// Applied records a batch that was sent to the store at one time and that got a reply at another.
func (m *Meter) Applied(name string, b *protocol.Batch, r *protocol.Reply, sent, now time.Time) {
	if r.Status == protocol.Stale {
		return // nothing was applied
	}
	t := m.tracker(name, r.Status != protocol.Unknown, now)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	t.series.active.Store(now.UnixNano())
	key := sessionKey{b.Session, b.Owner}
	if r.Status == protocol.Unknown {
		t.lostLocked(key, now)
		return
	}
	s := t.sessionLocked(key)
	s.seen, s.ttl = now, time.Duration(r.Config.TTL)*time.Microsecond
	if len(b.Ops) == 0 && len(s.leases) > 0 {
		t.series.renewals[renewed].Add(1)
	}
	t.first = r.First
	t.queuedLocked(s, b, sent)
	t.resultsLocked(s, r, now)
	t.waitingLocked(s, b)
	if r.Status == protocol.Applied {
		t.endedLocked(s, b, now)
	}
	if b.End {
		t.closeLocked(key, now)
	}
}

// Failed records a batch without a reply: a renewal that failed, if the session holds leases.
func (m *Meter) Failed(name string, b *protocol.Batch) {
	t := m.tracker(name, false, time.Time{})
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	if s := t.sessions[sessionKey{b.Session, b.Owner}]; s != nil && len(s.leases) > 0 && len(b.Ops) == 0 {
		t.series.renewals[renewalFailed].Add(1)
	}
}

// Rejected records an acquire that the server rejected before it reached the store.
func (m *Meter) Rejected(name string, o Result, reason string, known bool, now time.Time) {
	m.mu.Lock()
	s := m.folded
	if known {
		s = m.seriesLocked(name, false, now)
	}
	m.mu.Unlock()
	s.active.Store(now.UnixNano())
	s.reject(o, reason)
}

// Deleted records that a semaphore was deleted: its leases are lost.
func (m *Meter) Deleted(name string, now time.Time) {
	t := m.tracker(name, false, now)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	for id, s := range t.sessions {
		t.loseLocked(s, LostDeleted, now)
		delete(t.sessions, id)
	}
}

// tracker returns the tracker of a semaphore, locked. It returns nil if there is none and it must
// not be created.
func (m *Meter) tracker(name string, create bool, now time.Time) *tracker {
	for {
		m.mu.Lock()
		t := m.trackers[name]
		if t == nil && create {
			t = &tracker{series: m.seriesLocked(name, false, now), sessions: map[sessionKey]*session{}}
			m.trackers[name] = t
		}
		m.mu.Unlock()
		if t == nil {
			return nil
		}
		t.mu.Lock()
		if !t.dropped {
			return t
		}
		t.mu.Unlock()
	}
}

// seriesLocked returns the series of a semaphore. An undeclared one gets its own if there is room,
// or if it may replace another. An idle one does not replace those that are merely unused.
func (m *Meter) seriesLocked(name string, idle bool, now time.Time) *Series {
	if s := m.series[name]; s != nil {
		return s
	}
	owner, declared := "", m.declared(name)
	if !declared {
		owner = m.owner(name)
		if m.others >= m.limit && (idle || !m.replaceUnusedLocked(now)) && !m.replaceOfLocked(owner) {
			return m.folded
		}
		m.others++
		m.owned[owner]++
	}
	s := newSeries(name, owner, declared, now)
	if idle {
		s.active.Store(0)
	}
	m.series[name] = s
	m.redirectLocked(name, s)
	return s
}

// redirectLocked makes what happens from now on count for another series.
func (m *Meter) redirectLocked(name string, to *Series) {
	if t := m.trackers[name]; t != nil {
		t.mu.Lock()
		t.series = to
		t.mu.Unlock()
	}
}

// replaceUnusedLocked drops the undeclared series that was unused for longest, if that was for
// [idleSeries]. It searches at most once a second: under many names, nearly all searches would
// find nothing.
func (m *Meter) replaceUnusedLocked(now time.Time) bool {
	if now.Sub(m.scanned) < time.Second {
		return false
	}
	oldest := m.oldestLocked(func(s *Series) bool { return m.trackers[s.Name] == nil })
	if oldest == nil || now.Sub(time.Unix(0, oldest.active.Load())) < idleSeries {
		m.scanned = now
		return false
	}
	m.dropLocked(oldest)
	return true
}

// replaceOfLocked drops the least recently used series of the owner with the most of them, if a
// further one of another owner makes their numbers more equal.
func (m *Meter) replaceOfLocked(owner string) bool {
	most, n := m.mostLocked()
	if n <= m.owned[owner]+1 {
		return false
	}
	oldest := m.oldestLocked(func(s *Series) bool { return s.owner == most })
	if oldest == nil {
		return false
	}
	m.dropLocked(oldest)
	return true
}

func (m *Meter) mostLocked() (owner string, n int) {
	for o, of := range m.owned {
		if of > n || of == n && o < owner {
			owner, n = o, of
		}
	}
	return owner, n
}

// oldestLocked returns the least recently used undeclared series that matches; nil: there is none.
func (m *Meter) oldestLocked(match func(*Series) bool) (oldest *Series) {
	for _, s := range m.series {
		if !s.declared && (oldest == nil || s.active.Load() < oldest.active.Load()) && match(s) {
			oldest = s
		}
	}
	return oldest
}

func (m *Meter) dropLocked(s *Series) {
	delete(m.series, s.Name)
	m.redirectLocked(s.Name, m.folded)
	m.others--
	m.replaced++
	if m.owned[s.owner]--; m.owned[s.owner] == 0 {
		delete(m.owned, s.owner)
	}
}

// Most returns the identity that owns the most undeclared series, and how many.
func (m *Meter) Most() (owner string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mostLocked()
}

// Sweep drops trackers and sessions that hold nothing and were unused for two TTLs. It returns
// the semaphores whose sessions hold leases and are overdue: their snapshot shows what became of
// the leases, see [Meter.Reconcile].
func (m *Meter) Sweep(now time.Time) (overdue []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, t := range m.trackers {
		if !t.mu.TryLock() {
			continue // in use
		}
		late := false
		for id, s := range t.sessions {
			idle := now.Sub(s.seen)
			switch {
			case len(s.leases) > 0 || len(s.queued) > 0:
				late = late || idle > s.ttl && !s.foreign
			case idle > 2*s.ttl:
				delete(t.sessions, id)
			}
		}
		if late {
			overdue = append(overdue, name)
		}
		if len(t.sessions) == 0 {
			t.dropped = true
			delete(m.trackers, name)
		}
		t.mu.Unlock()
	}
	return overdue
}

// Series returns the series of a semaphore; nil: it has none of its own.
func (m *Meter) Series(name string) *Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.series[name]
}

// All returns all series, the shared one last, and how often a series was replaced.
func (m *Meter) All() (all []*Series, replaced uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = make([]*Series, 0, len(m.series)+1)
	for _, s := range m.series {
		all = append(all, s)
	}
	return append(all, m.folded), m.replaced
}

// Folded returns the series of all semaphores without their own.
func (m *Meter) Folded() *Series { return m.folded }

// Trackers returns the number of semaphores in use through this server.
func (m *Meter) Trackers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.trackers)
}

// Observe sets the states of all semaphores as the store has listed them. It returns how many have
// no series of their own. An unused semaphore gets a series if there is room or its owner has
// fewer than another, and makes room for every one that is used.
func (m *Meter) Observe(states map[string]State, now time.Time) (folded int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, state := range states {
		if m.seriesLocked(name, state.InUse == 0 && state.Waiting == 0, now) == m.folded {
			folded++
		}
	}
	for name, s := range m.series {
		state, known := states[name]
		if !known {
			state = s.initial
		}
		state.Known = known
		s.mu.Lock()
		s.state = state
		s.mu.Unlock()
	}
	return folded
}
