package protocol

import (
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A session is one instance's use of the semaphore.
type session struct {
	id       Session
	instance string
	seq      uint64 // of the last batch that was heard
	deadline Micros // on the semaphore's clock
	seen     Micros // on the engine's
	renewal  uint64 // the how manieth of all sessions' it was

	tickets map[Ticket]*ticket // in line
	tries   []*ticket          // of those, the ones that would not wait
	leases  map[Seq]*lease
	pooled  int // how many of the leases are blocks

	fates    []Fate // not acknowledged yet
	lastFate uint64
	recalled bool // was woken to give blocks back, and has not spoken since
	node     list.Node[*session]
}

// renew makes the session the youngest. All sessions have the same TTL and the
// clock never goes back, so the order of renewal is that of deadlines.
func (s *State) renew(r *session) {
	r.deadline = s.clock + s.config.TTL
	r.seen = s.last
	r.recalled = false
	s.renewals++
	r.renewal = s.renewals
	s.journal.session(r.id)
	s.byRenewal.Remove(&r.node)
	s.byRenewal.PushBack(&r.node)
}

func (s *State) dead(r *session) bool { return r.deadline < s.clock }

// reapAtOnce is how many dead sessions one call clears away.
const reapAtOnce = 16

// reap ends sessions whose deadline has passed.
func (s *State) reap() {
	for oldest := s.byRenewal.First(); oldest != nil && s.dead(oldest.Of) && s.bury(oldest.Of); oldest = s.byRenewal.First() {
	}
}

// bury ends a dead session, unless this call has ended as many as one may.
func (s *State) bury(dead *session) bool {
	if s.budget == 0 {
		s.more = true
		return false
	}
	s.budget--
	s.end(dead)
	return true
}

// overdue reports whether somebody is silent for longer than a TTL by the
// engine's clock, though not by the semaphore's.
func (s *State) overdue() bool {
	oldest := s.byRenewal.First()
	return oldest != nil && s.last-oldest.Of.seen > s.config.TTL
}

// end takes the session out, with all it has.
func (s *State) end(r *session) {
	for _, t := range r.tickets {
		s.leave(t)
	}
	for _, l := range r.leases {
		s.drop(l)
	}
	s.byRenewal.Remove(&r.node)
	delete(s.sessions, r.id)
	s.journal.session(r.id)
}

// tell adds a fate for a session to hear.
func (s *State) tell(to *session, f Fate) {
	to.lastFate++
	f.N = to.lastFate
	to.fates = append(to.fates, f)
	s.journal.session(to.id)
	s.wake(to)
}

// wake has the session told that there is news. If it is the one that is being
// answered, the engine need not.
func (s *State) wake(who *session) {
	if !slices.Contains(s.woken, who.id) {
		s.woken = append(s.woken, who.id)
	}
}

// acknowledge forgets the fates that the session has heard. One that was told
// to give up a lease has done so.
func (s *State) acknowledge(from *session, upTo uint64) {
	n := 0
	for n < len(from.fates) && from.fates[n].N <= upTo {
		if f := from.fates[n]; f.Kind == Revoked {
			s.release(from, f.Lease, 0)
		}
		n++
	}
	from.fates = slices.Delete(from.fates, 0, n)
}

// othersWait reports whether somebody else is in line.
func (s *State) othersWait(than *session) bool { return s.line.Len() > len(than.tickets) }

// recall wakes those who have blocks, since somebody waits.
func (s *State) recall() {
	if s.pools == 0 {
		return
	}
	for holder := range s.byRenewal.All {
		if holder.pooled > 0 && !holder.recalled && s.othersWait(holder) {
			holder.recalled = true
			s.journal.session(holder.id)
			s.wake(holder)
		}
	}
}
