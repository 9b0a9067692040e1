package protocol

import (
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A ticket is one queued acquire.
type ticket struct {
	id      Ticket
	session *session
	weight  int64
	least   int64  // the weight that suffices
	until   Micros // deadline on the semaphore's clock; 0: no limit
	pooled  bool
	since   Micros   // on the store's clock
	details *Details // nil if empty
	fresh   bool     // queued since the last Track or Changes
	node    list.Node[*ticket]
}

func (s *State) first() *ticket {
	if s.queue.First() == nil {
		return nil
	}
	return s.queue.First().Of
}

// acquire queues a ticket, or rejects the acquire.
func (s *State) acquire(from *session, op Op) {
	if from.tickets[op.Ticket] != nil {
		return // duplicate ticket
	}
	reject := func(reason ResultKind) { s.addResult(from, Result{Kind: reason, Ticket: op.Ticket}) }
	s.grant() // what this batch has freed so far goes to earlier tickets
	least := op.Weight
	if op.Pooled && op.Least > 0 {
		least = min(op.Least, op.Weight)
	}
	fits := s.queue.Len() == 0 && s.fits(least)
	switch {
	case op.Weight <= 0 || op.Pooled && s.config.Numbered:
		reject(Invalid)
		return
	case s.config.Draining:
		reject(Draining)
		return
	case s.tooLarge(least):
		reject(TooLarge)
		return
	case op.Try && !fits:
		reject(Full)
		return
	case !fits && s.config.MaxWaiters != 0 && int64(s.queue.Len()) >= s.config.MaxWaiters:
		reject(QueueFull)
		return
	}
	t := &ticket{id: op.Ticket, session: from, weight: op.Weight, least: least, pooled: op.Pooled, since: s.last, details: op.Details}
	if op.Wait > 0 {
		t.until = s.clock + op.Wait
	}
	s.enqueue(t)
}

// enqueue adds a ticket to the end of the queue.
func (s *State) enqueue(t *ticket) {
	t.node.Of = t
	t.session.tickets[t.id] = t
	s.queue.PushBack(&t.node)
	s.wanted += t.least
	s.journal.arrive(t)
}

func (s *State) fits(weight int64) bool { return weight <= s.effective()-s.inUse }

// tooLarge reports whether a weight can never fit. Nothing is too large for a semaphore with
// capacity 0, which is paused.
func (s *State) tooLarge(weight int64) bool {
	whole := max(s.config.Whole, s.config.Capacity)
	return weight > whole && whole > 0
}

// grant grants tickets strictly from the head of the queue. It ends expired sessions in its
// way, as far as the budget of this call allows.
func (s *State) grant() {
	for t := s.first(); t != nil; t = s.first() {
		switch {
		case s.expired(t.session):
			if !s.endExpired(t.session) {
				return
			}
		case t.until > 0 && t.until < s.clock:
			s.reject(t, TimedOut)
		case !s.fits(t.least):
			return
		default:
			weight := s.portion(t)
			s.dequeue(t)
			s.grantLease(t, weight)
		}
	}
}

// portion returns how much of its weight a ticket is granted: what is free, but no more than
// the even share of its session while other sessions wait.
func (s *State) portion(t *ticket) int64 {
	most := t.weight
	if s.othersWait(t.session) {
		most = min(most, s.evenShare())
	}
	return max(t.least, min(most, s.effective()-s.inUse))
}

// evenShare returns the capacity divided by the number of sessions.
func (s *State) evenShare() int64 { return s.config.Capacity / int64(len(s.sessions)) }

// firstLeast returns the least weight of the first ticket in the queue; 0 if it is empty.
func (s *State) firstLeast() int64 {
	if first := s.first(); first != nil {
		return first.least
	}
	return 0
}

// dequeue removes a ticket from the queue.
func (s *State) dequeue(t *ticket) {
	s.queue.Remove(&t.node)
	s.wanted -= t.least
	s.journal.leave(t)
	delete(t.session.tickets, t.id)
}

// reject removes a ticket from the queue and adds a result with the reason.
func (s *State) reject(t *ticket, reason ResultKind) {
	s.dequeue(t)
	s.addResult(t.session, Result{Kind: reason, Ticket: t.id})
}

// rejectAll rejects the queued tickets for which reasonOf returns a reason.
func (s *State) rejectAll(reasonOf func(*ticket) ResultKind) {
	for t := range s.queue.All {
		if reason := reasonOf(t); reason != 0 {
			s.reject(t, reason)
		}
	}
}

// cancel cancels an acquire: it removes the ticket, or releases the lease that was granted.
func (s *State) cancel(from *session, id Ticket) {
	if t := from.tickets[id]; t != nil {
		s.dequeue(t)
		return
	}
	for i, f := range from.results {
		if f.Ticket == id && f.Kind != Revoked {
			switch {
			case f.Kind != Granted:
			case s.config.Kind == Rate:
				s.settleCost(from, Op{Lease: f.Lease})
			default:
				s.release(from, f.Lease, 0)
			}
			from.results = slices.Delete(from.results, i, i+1)
			return
		}
	}
}
