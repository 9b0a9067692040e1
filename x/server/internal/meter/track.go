package meter

import (
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A tracker follows the open acquires and leases of one semaphore.
type tracker struct {
	mu       sync.Mutex // guards what follows; locked after Meter.mu, or without it
	series   *Series
	dropped  bool
	first    int64 // weight that the first queued acquire needs, at the last reply
	sessions map[sessionKey]*session
}

// A sessionKey includes the owner: a batch with another owner must not end a session's figures.
type sessionKey struct {
	id    protocol.Session
	owner protocol.Owner
}

// A session is a session of a client at the store. The sessions of a semaphore that clients use
// through other servers, or directly, are foreign: only a snapshot shows them.
type session struct {
	seen    time.Time
	ttl     time.Duration
	seq     uint64 // of the last batch that got a reply
	result  uint64 // number of the last result that was recorded
	foreign bool
	queued  map[protocol.Ticket]ticket
	splits  map[protocol.Ticket]protocol.Seq // the lease that is split
	leases  map[protocol.Seq]lease
}

type ticket struct {
	since  time.Time
	wait   time.Duration // the longest wait; 0: no bound
	weight int64
	queued bool // it was neither granted nor rejected at once
}

type lease struct {
	since  time.Time
	ticket protocol.Ticket
	weight int64
}

func (t *tracker) sessionLocked(id sessionKey) *session {
	s := t.sessions[id]
	if s == nil {
		s = &session{queued: map[protocol.Ticket]ticket{}, leases: map[protocol.Seq]lease{}}
		t.sessions[id] = s
	}
	s.foreign = false
	return s
}

// queuedLocked records the acquires of a batch. A batch is recorded once, although its client
// resends it until it has a reply.
func (t *tracker) queuedLocked(s *session, b *protocol.Batch, sent time.Time) {
	if b.Seq <= s.seq {
		return
	}
	s.seq = b.Seq
	for _, op := range b.Ops {
		switch op.Verb {
		case protocol.Acquire:
			if _, known := s.queued[op.Ticket]; !known {
				s.queued[op.Ticket] = ticket{since: sent, wait: time.Duration(op.Wait) * time.Microsecond, weight: op.Weight}
				t.series.started(sent)
			}
		case protocol.Split:
			if s.splits == nil {
				s.splits = map[protocol.Ticket]protocol.Seq{}
			}
			s.splits[op.Ticket] = op.Lease
		}
	}
}

// waitingLocked records the acquires of a batch that have no result in its reply.
func (t *tracker) waitingLocked(s *session, b *protocol.Batch) {
	for _, op := range b.Ops {
		if len(s.queued) == 0 {
			return
		}
		if q, ok := s.queued[op.Ticket]; ok && op.Verb == protocol.Acquire && !q.queued {
			q.queued = true
			s.queued[op.Ticket] = q
			t.series.queued.Add(1)
		}
	}
}

// leftLocked records that an acquire is no longer queued. It returns how long it has waited.
func (t *tracker) leftLocked(q ticket, now time.Time) time.Duration {
	waited := now.Sub(q.since)
	if q.queued {
		t.series.queuedIn.Add(int64(max(0, waited)))
	}
	return waited
}

// resultsLocked records the results of a reply that are new.
func (t *tracker) resultsLocked(s *session, r *protocol.Reply, now time.Time) {
	for _, f := range r.Results {
		if f.N <= s.result {
			continue
		}
		s.result = f.N
		of, split := s.splits[f.Ticket]
		switch {
		case f.Kind == protocol.Revoked:
			if l, ok := s.leases[f.Lease]; ok {
				t.series.held(now.Sub(l.since), l.weight, now)
				delete(s.leases, f.Lease)
			} // or a snapshot has shown that it is gone: it was revoked at once
			t.series.lost[LostRevoked].Add(1)
		case split:
			delete(s.splits, f.Ticket)
			if l, ok := s.leases[of]; ok && f.Kind == protocol.Granted {
				l.weight -= f.Weight
				s.leases[of] = l
				s.leases[f.Lease] = lease{l.since, f.Ticket, f.Weight}
			}
		default:
			t.resultLocked(s, f, r.Config.Kind, now)
		}
	}
}

// resultLocked records the result of an acquire.
func (t *tracker) resultLocked(s *session, f protocol.Result, kind protocol.Kind, now time.Time) {
	q, known := s.queued[f.Ticket]
	delete(s.queued, f.Ticket)
	waited := t.leftLocked(q, now)
	reject := t.series.reject
	if known {
		reject = func(o Result, reason string) { t.series.rejectStarted(o, reason, now) }
	}
	switch f.Kind {
	case protocol.Granted:
		t.series.granted(f.Weight, waited, known, now)
		if kind != protocol.Rate { // the permits of a rate are not held
			s.leases[f.Lease] = lease{now, f.Ticket, f.Weight}
		}
	case protocol.TimedOut:
		t.series.gaveUp(TimedOut, waited, now)
	case protocol.Invalid:
		if q.weight == 0 && known {
			reject(Rejected, "limit") // the server rewrote an acquire above a limit
		} else {
			reject(Error, "")
		}
	default:
		reject(Rejected, reasonOf(f.Kind))
	}
}

// endedLocked records the operations of an applied batch that end a lease or an acquire.
func (t *tracker) endedLocked(s *session, b *protocol.Batch, now time.Time) {
	for _, op := range b.Ops {
		switch op.Verb {
		case protocol.Release:
			l, ok := s.leases[op.Lease]
			switch {
			case !ok || op.Weight < 0:
			case op.Weight > 0 && op.Weight < l.weight:
				l.weight -= op.Weight
				s.leases[op.Lease] = l
			default:
				t.series.held(now.Sub(l.since), l.weight, now)
				delete(s.leases, op.Lease)
			}
		case protocol.Cancel:
			if q, ok := s.queued[op.Ticket]; ok {
				o, waited := Canceled, t.leftLocked(q, now)
				if q.wait > 0 && waited >= q.wait { // its client has timed out first
					o = TimedOut
				}
				t.series.gaveUp(o, waited, now)
				delete(s.queued, op.Ticket)
				continue
			}
			for seq, l := range s.leases { // it was granted meanwhile
				if l.ticket == op.Ticket {
					t.series.held(now.Sub(l.since), l.weight, now)
					delete(s.leases, seq)
				}
			}
		}
	}
}

// closeLocked records the end of a session by its client: its leases are released.
func (t *tracker) closeLocked(id sessionKey, now time.Time) {
	s := t.sessions[id]
	for _, l := range s.leases {
		t.series.held(now.Sub(l.since), l.weight, now)
	}
	for _, q := range s.queued {
		t.series.gaveUp(Canceled, t.leftLocked(q, now), now)
	}
	delete(t.sessions, id)
}

// lostLocked records that the store no longer knows a session.
func (t *tracker) lostLocked(id sessionKey, now time.Time) {
	s := t.sessions[id]
	if s == nil {
		return
	}
	if len(s.leases) > 0 {
		t.series.renewals[renewalLost].Add(1)
	}
	t.loseLocked(s, LostExpired, now)
	delete(t.sessions, id)
}

// loseLocked records that a session has lost its leases and queued acquires.
func (t *tracker) loseLocked(s *session, why Lost, now time.Time) {
	if s.foreign {
		return
	}
	for _, l := range s.leases {
		t.series.held(now.Sub(l.since), l.weight, now)
		t.series.lost[why].Add(1)
	}
	for _, q := range s.queued {
		t.leftLocked(q, now)
		t.series.reject(Error, "")
	}
}

// reasonOf returns the reason of a rejection, as [sema.Reason] names it.
func reasonOf(k protocol.ResultKind) string {
	switch k {
	case protocol.Full:
		return "full"
	case protocol.QueueFull:
		return "queue-full"
	case protocol.TooLarge:
		return "too-large"
	case protocol.Draining:
		return "draining"
	case protocol.Undecided:
		return "undecided"
	}
	return "other"
}
