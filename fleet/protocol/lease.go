package protocol

import "github.com/sema-go/sema/internal/list"

// A lease is permits that a session has.
type lease struct {
	seq     Seq
	session *session
	weight  int64
	pooled  bool
	revoked bool
	since   Micros
	meta    string
	node    list.Node[*lease]
}

// lend makes a lease for a ticket, and tells. What a Rate grants is spent at once
// and needs no lease.
func (s *State) lend(asked *ticket, weight int64) {
	s.lastSeq++
	s.inUse += weight
	if s.config.Kind == Rate {
		s.spent = append(s.spent, spending{s.last + s.config.Window, weight})
		s.journal.spend()
	} else {
		s.keep(&lease{seq: s.lastSeq, session: asked.session, weight: weight, pooled: asked.pooled, since: s.last, meta: asked.meta})
	}
	s.tell(asked.session, Fate{Kind: Granted, Ticket: asked.id, Lease: s.lastSeq, Weight: weight})
}

func (s *State) keep(l *lease) {
	l.node.Of = l
	s.leases[l.seq] = l
	s.journal.lease(l.seq)
	s.live.PushBack(&l.node)
	l.session.leases[l.seq] = l
	if l.pooled {
		l.session.pooled++
		s.notePool(l.session)
	}
}

// drop frees a lease.
func (s *State) drop(l *lease) {
	s.inUse -= l.weight
	s.journal.lease(l.seq)
	s.live.Remove(&l.node)
	delete(s.leases, l.seq)
	delete(l.session.leases, l.seq)
	if l.pooled {
		l.session.pooled--
		s.notePool(l.session)
	}
}

// release gives back some of a lease, or all of it. One that is not there any
// more is moot.
func (s *State) release(from *session, seq Seq, weight int64) {
	l := from.leases[seq]
	switch {
	case l == nil || weight < 0:
	case weight == 0 || weight >= l.weight:
		s.drop(l)
	default:
		l.weight -= weight
		s.inUse -= weight
		s.journal.lease(seq)
	}
}

// split parts a lease in two. The new one has a Seq of its own.
func (s *State) split(from *session, op Op) {
	l := from.leases[op.Lease]
	if l == nil || l.revoked || op.Weight <= 0 || op.Weight >= l.weight {
		s.tell(from, Fate{Kind: Invalid, Ticket: op.Ticket})
		return
	}
	l.weight -= op.Weight
	s.journal.lease(l.seq)
	s.lastSeq++
	s.keep(&lease{seq: s.lastSeq, session: from, weight: op.Weight, pooled: l.pooled, since: l.since, meta: l.meta})
	s.tell(from, Fate{Kind: Granted, Ticket: op.Ticket, Lease: s.lastSeq, Weight: op.Weight})
}

// fence is what a holder shows to what it writes to.
func (s *State) fence(seq Seq) Fence {
	f := Fence{Seq: seq, Floor: seq}
	if s.live.First() == nil {
		return f
	}
	f.Floor = min(seq, s.live.First().Of.seq)
	if f.Exact = s.live.Len() <= MaxFenced; !f.Exact {
		return f
	}
	expected := f.Floor
	for l := range s.live.All {
		if l.seq > seq {
			break
		}
		if l.seq > expected {
			f.Revoked = append(f.Revoked, Range{expected, l.seq - 1})
		}
		expected = l.seq + 1
	}
	if expected < seq { // its own lease is gone, and so is what came just before
		f.Revoked = append(f.Revoked, Range{expected, seq - 1})
	}
	return f
}
