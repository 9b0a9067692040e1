package meter

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// Reconcile compares what was recorded with a snapshot that was requested at a time: leases of
// overdue sessions may be lost, and clients may use the semaphore through another server or
// directly, where the meter does not see them. skew is the time by which the clock of the store is
// ahead of that of the caller.
func (m *Meter) Reconcile(name string, snapshot *protocol.Snapshot, skew time.Duration, asked, now time.Time) {
	t := m.tracker(name, len(snapshot.Leases) > 0 || len(snapshot.Queue) > 0, now)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	leases := map[protocol.Session]map[protocol.Seq]lease{}
	for _, l := range snapshot.Leases {
		if leases[l.Session] == nil {
			leases[l.Session] = map[protocol.Seq]lease{}
		}
		leases[l.Session][l.Seq] = lease{since: time.UnixMicro(int64(l.Since)).Add(-skew), weight: l.Weight}
	}
	queued := map[protocol.Session]map[protocol.Ticket]ticket{}
	for _, q := range snapshot.Queue {
		if queued[q.Session] == nil {
			queued[q.Session] = map[protocol.Ticket]ticket{}
		}
		queued[q.Session][q.Ticket] = ticket{since: time.UnixMicro(int64(q.Since)).Add(-skew), weight: q.Weight}
	}
	known := map[protocol.Session]bool{}
	for key, s := range t.sessions {
		if s.foreign {
			delete(t.sessions, key)
			continue
		}
		known[key.id] = true
		if s.seen.After(asked) {
			continue // the snapshot is older
		}
		t.compareLocked(s, leases[key.id], now)
	}
	for _, info := range snapshot.Sessions {
		if known[info.Session] || leases[info.Session] == nil && queued[info.Session] == nil {
			continue
		}
		s := &session{
			seen: now, ttl: time.Duration(snapshot.Config.TTL) * time.Microsecond, foreign: true,
			queued: queued[info.Session], leases: leases[info.Session],
		}
		if s.queued == nil {
			s.queued = map[protocol.Ticket]ticket{}
		}
		if s.leases == nil {
			s.leases = map[protocol.Seq]lease{}
		}
		t.sessions[sessionKey{info.Session, info.Owner}] = s
	}
}

// compareLocked drops the leases of a session that the store no longer has. Those of an overdue
// session have expired; others were released through another server.
func (t *tracker) compareLocked(s *session, stored map[protocol.Seq]lease, now time.Time) {
	overdue := now.Sub(s.seen) > s.ttl
	for seq, l := range s.leases {
		if _, ok := stored[seq]; ok {
			continue
		}
		t.series.held(now.Sub(l.since), l.weight, now)
		if overdue {
			t.series.lost[LostExpired].Add(1)
		}
		delete(s.leases, seq)
	}
	if overdue && len(stored) == 0 {
		for _, q := range s.queued {
			t.leftLocked(q, now)
		}
		clear(s.queued)
	}
	if overdue && len(s.leases) > 0 {
		s.seen = now // renewed through another server: look again in a TTL
	}
}

// An Open is what the meter knows of the open acquires and leases of a semaphore.
type Open struct {
	InUse, Waiting             int64
	HeadSince, OldestHoldSince time.Time // zero: none
	First                      int64     // weight that the first queued acquire needs; 0: unknown
}

// Open returns what is open of a semaphore.
func (m *Meter) Open(name string) (o Open) {
	t := m.tracker(name, false, time.Time{})
	if t == nil {
		return o
	}
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		for _, l := range s.leases {
			o.InUse += l.weight
			if o.OldestHoldSince.IsZero() || l.since.Before(o.OldestHoldSince) {
				o.OldestHoldSince = l.since
			}
		}
		for _, q := range s.queued {
			o.Waiting++
			if o.HeadSince.IsZero() || q.since.Before(o.HeadSince) {
				o.HeadSince = q.since
			}
		}
	}
	if o.Waiting > 0 {
		o.First = t.first
	}
	return o
}

// queuedIn returns how long the acquires of a series were queued, including those queued now. It
// never decreases.
func (m *Meter) queuedIn(s *Series, now time.Time) time.Duration {
	t := m.tracker(s.Name, false, now)
	if t == nil {
		return time.Duration(s.queuedIn.Load())
	}
	defer t.mu.Unlock()
	sum := time.Duration(s.queuedIn.Load()) // t.mu guards it against the end of a wait
	for _, one := range t.sessions {
		for _, q := range one.queued {
			if q.queued {
				sum += max(0, now.Sub(q.since))
			}
		}
	}
	return sum
}
