// Package meter measures semaphores from the batches and replies that pass through a server:
// acquires by result, waits, holds, lost leases and renewals. It sees what all clients of the
// server do, whatever protocol they use, because each of them ends in batches of the store.
//
// It has no clock and does no I/O: its callers pass the time.
//
// Memory is bounded. A semaphore with open acquires or leases has a tracker, which is dropped
// when it is idle; the limits of the server bound how many there are. Its figures are kept in a
// [Series]. Declared semaphores always have one of their own. Of the others, the most recently
// active have one, up to a limit; the rest share one, see [Meter.Folded].
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

	mu       sync.Mutex
	trackers map[string]*tracker
	series   map[string]*Series
	others   int     // series of semaphores that are not declared
	folded   *Series // shared by semaphores without a series of their own
	replaced uint64  // series that were dropped for another semaphore
	scanned  time.Time
}

// New returns a meter that gives at most limit undeclared semaphores a series of their own.
func New(limit int, declared func(name string) bool) *Meter {
	return &Meter{
		limit: limit, declared: declared, trackers: map[string]*tracker{}, series: map[string]*Series{},
		folded: newSeries(FoldedName, true, time.Time{}),
	}
}

// FoldedName is the name of the series of all semaphores without their own. No semaphore can have
// this name, because names contain no braces.
const FoldedName = "{other}"

// Declare creates the series of a declared semaphore, so that it exists before its first use.
func (m *Meter) Declare(name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[name] == nil {
		m.series[name] = newSeries(name, true, now)
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
		s = m.seriesLocked(name, now)
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
			t = &tracker{series: m.seriesLocked(name, now), sessions: map[sessionKey]*session{}}
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
// or if another undeclared semaphore was unused for [idleSeries].
func (m *Meter) seriesLocked(name string, now time.Time) *Series {
	if s := m.series[name]; s != nil {
		return s
	}
	declared := m.declared(name)
	if !declared {
		if m.others >= m.limit && !m.replaceLocked(now) {
			return m.folded
		}
		m.others++
	}
	s := newSeries(name, declared, now)
	m.series[name] = s
	return s
}

// replaceLocked drops the undeclared series that was unused for longest. It searches at most once
// a second: under many names, nearly all searches would find nothing.
func (m *Meter) replaceLocked(now time.Time) bool {
	if now.Sub(m.scanned) < time.Second {
		return false
	}
	var oldest *Series
	for _, s := range m.series {
		if !s.declared && m.trackers[s.Name] == nil && (oldest == nil || s.active.Load() < oldest.active.Load()) {
			oldest = s
		}
	}
	if oldest == nil || now.Sub(time.Unix(0, oldest.active.Load())) < idleSeries {
		m.scanned = now
		return false
	}
	delete(m.series, oldest.Name)
	m.others--
	m.replaced++
	return true
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
// no series of their own. An unused semaphore gets a series if there is room, and makes room for
// every one that is used.
func (m *Meter) Observe(states map[string]State, now time.Time) (folded int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, state := range states {
		if m.series[name] == nil && (m.declared(name) || m.others < m.limit) {
			s := m.seriesLocked(name, now)
			if state.InUse == 0 && state.Waiting == 0 {
				s.active.Store(0)
			}
		}
		if m.series[name] == nil {
			folded++
		}
	}
	for name, s := range m.series {
		state, known := states[name]
		state.Known = known
		s.mu.Lock()
		s.state = state
		s.mu.Unlock()
	}
	return folded
}
