package protocol

import (
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A ticket is one acquire in line.
type ticket struct {
	id      Ticket
	session *session
	weight  int64
	least   int64  // what will do
	until   Micros // on the semaphore's clock; 0: without limit
	pooled  bool
	since   Micros // on the store's clock
	details Details
	fresh   bool // came since the journal was begun
	node    list.Node[*ticket]
}

func (s *State) first() *ticket {
	if s.line.First() == nil {
		return nil
	}
	return s.line.First().Of
}

// acquire puts a ticket in line, or refuses it.
func (s *State) acquire(from *session, op Op) {
	if from.tickets[op.Ticket] != nil {
		return // named twice
	}
	refuse := func(why ResultKind) { s.tell(from, Result{Kind: why, Ticket: op.Ticket}) }
	s.grant() // what this batch has freed so far goes to those who were first
	least := op.Weight
	if op.Pooled && op.Least > 0 {
		least = min(op.Least, op.Weight)
	}
	fits := s.line.Len() == 0 && s.fits(least)
	switch {
	case op.Weight <= 0 || op.Pooled && s.config.Numbered:
		refuse(Invalid)
		return
	case s.config.Draining:
		refuse(Draining)
		return
	case s.tooLarge(least):
		refuse(TooLarge)
		return
	case op.Try && !fits:
		refuse(Full)
		return
	case !fits && s.config.MaxWaiters != 0 && int64(s.line.Len()) >= s.config.MaxWaiters:
		refuse(QueueFull)
		return
	}
	t := &ticket{id: op.Ticket, session: from, weight: op.Weight, least: least, pooled: op.Pooled, since: s.last, details: op.Details}
	if op.Wait > 0 {
		t.until = s.clock + op.Wait
	}
	s.stand(t)
}

// stand puts a ticket at the end of the line.
func (s *State) stand(t *ticket) {
	t.node.Of = t
	t.session.tickets[t.id] = t
	s.line.PushBack(&t.node)
	s.wanted += t.least
	s.journal.arrive(t)
}

func (s *State) fits(weight int64) bool { return weight <= s.effective()-s.inUse }

// tooLarge: more than there can ever be. A semaphore at 0 is paused, and nothing
// is too large for it.
func (s *State) tooLarge(weight int64) bool {
	whole := max(s.config.Whole, s.config.Capacity)
	return weight > whole && whole > 0
}

// grant serves the line, strictly from its head. A dead session is not in its
// way, unless this call has ended as many as one may.
func (s *State) grant() {
	for t := s.first(); t != nil; t = s.first() {
		switch {
		case s.dead(t.session):
			if !s.bury(t.session) {
				return
			}
		case t.until > 0 && t.until < s.clock:
			s.refuse(t, TimedOut)
		case !s.fits(t.least):
			return
		default:
			weight := s.portion(t)
			s.leave(t)
			s.lend(t, weight)
		}
	}
}

// portion is how much of what it would like a ticket is given: what is free, but
// while others wait no more than its session's even share.
func (s *State) portion(t *ticket) int64 {
	most := t.weight
	if s.othersWait(t.session) {
		most = min(most, s.evenShare())
	}
	return max(t.least, min(most, s.effective()-s.inUse))
}

func (s *State) evenShare() int64 { return s.config.Capacity / int64(len(s.sessions)) }

// firstWants is with how little the first in line would do; 0 if there is none.
func (s *State) firstWants() int64 {
	if first := s.first(); first != nil {
		return first.least
	}
	return 0
}

// leave takes a ticket out of line.
func (s *State) leave(t *ticket) {
	s.line.Remove(&t.node)
	s.wanted -= t.least
	s.journal.leave(t)
	delete(t.session.tickets, t.id)
}

// refuse ends a ticket without a lease.
func (s *State) refuse(t *ticket, why ResultKind) {
	s.leave(t)
	s.tell(t.session, Result{Kind: why, Ticket: t.id})
}

// refuseAll refuses those in line for whom why has a reason.
func (s *State) refuseAll(why func(*ticket) ResultKind) {
	for t := range s.line.All {
		if reason := why(t); reason != 0 {
			s.refuse(t, reason)
		}
	}
}

// cancel takes back an acquire, whatever has become of it.
func (s *State) cancel(from *session, id Ticket) {
	if t := from.tickets[id]; t != nil {
		s.leave(t)
		return
	}
	for i, f := range from.results {
		if f.Ticket == id && f.Kind != Revoked {
			if f.Kind == Granted {
				s.release(from, f.Lease, 0)
			}
			from.results = slices.Delete(from.results, i, i+1)
			return
		}
	}
}
