package protocol

import (
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A session is one instance's use of the semaphore.
type session struct {
	id       Session
	client   Client
	owner    Owner
	seq      uint64 // of the last batch that was heard
	deadline Micros // on the semaphore's clock
	renewed  Micros // on the store's
	renewal  uint64 // the how manieth of all sessions' it was

	tickets map[Ticket]*ticket // in line
	leases  map[Seq]*lease
	pooled  int // how many of the leases are blocks

	results    []Result // not acknowledged yet
	lastResult uint64
	woken      bool
	recalled   bool // is in State.recalled, not in State.pools
	extended   bool // has given no sign of life since [State.Extend]
	node       list.Node[*session]
	pool       list.Node[*session]
}

// renew makes the session the youngest. All sessions have the same TTL and the
// clock never goes back, so the order of renewal is that of deadlines.
func (s *State) renew(r *session) {
	r.deadline = s.clock + s.config.TTL
	r.renewed = s.last
	s.renewals++
	r.renewal = s.renewals
	s.journal.session(r.id)
	if r.extended {
		r.extended = false
		s.journal.matter() // or it is taken for dead when it is restored again
	}
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

// undecided returns how long it takes until it is known whether a session that has
// sent nothing for a TTL on the store's clock has expired on the semaphore's.
func (s *State) undecided() Micros {
	oldest := s.byRenewal.First()
	switch {
	case oldest == nil || s.config.Kind == Rate: // of which no session holds anything
		return 0
	case s.dead(oldest.Of): // beyond what one call ends
		return 1
	case s.last-oldest.Of.renewed <= s.config.TTL:
		return 0
	}
	return oldest.Of.deadline - s.clock + 1
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

// tell adds a result for a session to hear.
func (s *State) tell(to *session, f Result) {
	to.lastResult++
	f.N = to.lastResult
	to.results = append(to.results, f)
	s.journal.session(to.id)
	s.journal.matter()
	s.wake(to)
}

// wake has the session told that there is news. If it is the one that is being
// answered, the engine need not.
func (s *State) wake(who *session) {
	if !who.woken {
		who.woken = true
		s.woken = append(s.woken, who.id)
	}
}

// acknowledge forgets the results that the session has heard. One that was told
// to give up a lease has done so.
func (s *State) acknowledge(from *session, upTo uint64) {
	n := 0
	for n < len(from.results) && from.results[n].N <= upTo {
		if f := from.results[n]; f.Kind == Revoked {
			s.release(from, f.Lease, 0)
		}
		n++
	}
	from.results = slices.Delete(from.results, 0, n)
}

// othersWait reports whether somebody else is in line.
func (s *State) othersWait(than *session) bool { return s.line.Len() > len(than.tickets) }

// recalls reports whether a session is to give back what it does not use of its
// blocks.
func (s *State) recalls(from *session) bool {
	return s.othersWait(from) || s.config.Draining || s.inUse > s.effective()
}

// recall wakes those who have blocks, once, when somebody else begins to wait.
func (s *State) recall() {
	if s.line.Len() == 0 && s.recalled.Len() == 0 && !s.config.Draining && s.inUse <= s.effective() {
		return
	}
	for holder := range s.pools.All {
		if s.recalls(holder) {
			s.noteRecalled(holder, true)
			s.wake(holder)
		}
	}
	if s.recalled.Len() == 0 || s.line.Len() > 0 || s.config.Draining || s.inUse > s.effective() {
		return
	}
	for holder := range s.recalled.All {
		s.noteRecalled(holder, false)
	}
}

// noteRecalled moves a session from one list to the other.
func (s *State) noteRecalled(holder *session, recalled bool) {
	from, to := &s.pools, &s.recalled
	if !recalled {
		from, to = to, from
	}
	from.Remove(&holder.pool)
	to.PushBack(&holder.pool)
	holder.recalled = recalled
	s.journal.session(holder.id)
}

// notePool has the session among those with blocks, or not.
func (s *State) notePool(holder *session) {
	in := &s.pools
	if holder.recalled {
		in = &s.recalled
	}
	switch {
	case holder.pooled == 0:
		in.Remove(&holder.pool)
		holder.recalled = false
		s.journal.session(holder.id)
	case !holder.pool.In():
		in.PushBack(&holder.pool)
	}
}
