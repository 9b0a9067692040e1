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
	seq      uint64 // of the last batch that was applied
	deadline Micros // on the semaphore's clock
	renewed  Micros // on the store's clock
	renewal  uint64 // ordinal of the last renewal among those of all sessions

	tickets map[Ticket]*ticket // queued tickets
	leases  map[Seq]*lease
	pooled  int // number of leases that are blocks

	results    []Result // not acknowledged yet
	lastResult uint64
	woken      bool
	recalled   bool // in State.recalled instead of State.pools
	extended   bool // not renewed since [State.Extend]
	node       list.Node[*session]
	pool       list.Node[*session]
}

// renew makes the session the youngest. All sessions have the same TTL and the clock never
// steps back, so the order of renewals is the order of deadlines.
func (s *State) renew(r *session) {
	r.deadline = s.clock + s.config.TTL
	r.renewed = s.last
	s.renewals++
	r.renewal = s.renewals
	s.journal.session(r.id)
	if r.extended {
		r.extended = false
		s.journal.markVital() // otherwise it would not be extended when it is restored again
	}
	s.byRenewal.Remove(&r.node)
	s.byRenewal.PushBack(&r.node)
}

func (s *State) expired(r *session) bool { return r.deadline < s.clock }

// reapAtOnce is the number of expired sessions that one call ends at most.
const reapAtOnce = 16

// reap ends sessions whose deadline has passed.
func (s *State) reap() {
	for oldest := s.byRenewal.First(); oldest != nil && s.expired(oldest.Of) && s.endExpired(oldest.Of); oldest = s.byRenewal.First() {
	}
}

// endExpired ends an expired session. It sets more and returns false if this call has used up
// its budget.
func (s *State) endExpired(r *session) bool {
	if s.budget == 0 {
		s.more = true
		return false
	}
	s.budget--
	s.end(r)
	return true
}

// undecided returns the time until the state is decided, 0 if it is. It is undecided while a
// session that has sent nothing for a TTL on the store's clock may still be live on the
// semaphore's clock.
func (s *State) undecided() Micros {
	oldest := s.byRenewal.First()
	switch {
	case oldest == nil || s.config.Kind == Rate: // no session of a Rate holds anything
		return 0
	case s.expired(oldest.Of): // left over by this call
		return 1
	case s.last-oldest.Of.renewed <= s.config.TTL:
		return 0
	}
	return oldest.Of.deadline - s.clock + 1
}

// end removes the session with its tickets and leases.
func (s *State) end(r *session) {
	for _, t := range r.tickets {
		s.dequeue(t)
	}
	for _, l := range r.leases {
		s.removeLease(l)
	}
	s.byRenewal.Remove(&r.node)
	delete(s.sessions, r.id)
	s.journal.session(r.id)
}

// addResult adds a result to the session and marks the session for notification.
func (s *State) addResult(to *session, f Result) {
	to.lastResult++
	f.N = to.lastResult
	to.results = append(to.results, f)
	s.journal.session(to.id)
	s.journal.markVital()
	s.wake(to)
}

// wake marks the session for notification. Apply removes the mark from the session that it
// replies to.
func (s *State) wake(r *session) {
	if !r.woken {
		r.woken = true
		s.woken = append(s.woken, r.id)
	}
}

// acknowledge removes the results that the session has received. The acknowledgement of a
// revocation releases the lease.
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

// othersWait reports whether a ticket of another session is queued.
func (s *State) othersWait(than *session) bool { return s.queue.Len() > len(than.tickets) }

// recalls reports whether a session has to release the unused part of its blocks.
func (s *State) recalls(from *session) bool {
	return s.othersWait(from) || s.config.Draining || s.inUse > s.effective()
}

// recall marks the sessions whose blocks are recalled for notification, each once per recall.
func (s *State) recall() {
	if s.queue.Len() == 0 && s.recalled.Len() == 0 && !s.config.Draining && s.inUse <= s.effective() {
		return
	}
	for holder := range s.pools.All {
		if s.recalls(holder) {
			s.noteRecalled(holder, true)
			s.wake(holder)
		}
	}
	if s.recalled.Len() == 0 || s.queue.Len() > 0 || s.config.Draining || s.inUse > s.effective() {
		return
	}
	for holder := range s.recalled.All {
		s.noteRecalled(holder, false)
	}
}

// noteRecalled moves a session between the lists pools and recalled.
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

// notePool adds a session with blocks to its list, or removes one without blocks.
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
