package protocol

import "github.com/sema-go/sema/internal/list"

// A lease is a grant of permits to a session.
type lease struct {
	seq     Seq
	session *session
	weight  int64
	pooled  bool
	revoked bool
	since   Micros
	slots   Slots
	details *Details // nil if empty
	node    list.Node[*lease]
}

// grantLease grants a ticket: it creates a lease and adds the result. A grant of a Rate is spent
// at once and needs no lease.
func (s *State) grantLease(t *ticket, weight int64) {
	var slots Slots
	s.lastSeq++
	s.inUse += weight
	if s.config.Kind == Rate {
		s.spend(t.session, weight)
	} else {
		slots = s.freeSlots(weight)
		s.addLease(&lease{seq: s.lastSeq, session: t.session, weight: weight, pooled: t.pooled, since: s.last, slots: slots, details: t.details})
	}
	s.addResult(t.session, Result{Kind: Granted, Ticket: t.id, Lease: s.lastSeq, Weight: weight, Slots: slots})
}

func (s *State) addLease(l *lease) {
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

// removeLease removes a lease and frees its permits.
func (s *State) removeLease(l *lease) {
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

// release releases some of a lease, or all of it for weight 0. It ignores a lease that does
// not exist any more.
func (s *State) release(from *session, seq Seq, weight int64) {
	l := from.leases[seq]
	switch {
	case l == nil || weight < 0:
	case weight == 0 || weight >= l.weight:
		s.removeLease(l)
	default:
		l.weight -= weight
		l.slots, _ = l.slots.cut(weight)
		s.inUse -= weight
		s.journal.lease(seq)
	}
}

// split splits a lease in two. The new lease has a Seq of its own.
func (s *State) split(from *session, op Op) {
	l := from.leases[op.Lease]
	if l == nil || l.revoked || op.Weight <= 0 || op.Weight >= l.weight {
		s.addResult(from, Result{Kind: Invalid, Ticket: op.Ticket})
		return
	}
	l.weight -= op.Weight
	kept, slots := l.slots.cut(op.Weight)
	l.slots = kept
	s.journal.lease(l.seq)
	s.lastSeq++
	s.addLease(&lease{seq: s.lastSeq, session: from, weight: op.Weight, pooled: l.pooled, since: l.since, slots: slots, details: l.details})
	s.addResult(from, Result{Kind: Granted, Ticket: op.Ticket, Lease: s.lastSeq, Weight: op.Weight, Slots: slots})
}

// fences returns the fences of seqs, which ascend. One pass over the live leases serves all
// of them: the Revoked of a fence is a prefix of the next one's.
func (s *State) fences(seqs []Seq) []Fence {
	fences := make([]Fence, len(seqs))
	var gone []Range
	next, live := s.live.First(), s.live.Len() > 0
	exact := s.live.Len() <= MaxFenced
	expected := Seq(0)
	if live {
		expected = next.Of.seq
	}
	for i, seq := range seqs {
		f := Fence{Seq: seq, Floor: seq, Exact: exact}
		if live {
			f.Floor = min(seq, s.live.First().Of.seq)
		}
		if live && exact && expected <= seq {
			for ; next != nil && next.Of.seq <= seq; next = next.Next() {
				if next.Of.seq > expected {
					gone = append(gone, Range{expected, next.Of.seq - 1})
				}
				expected = next.Of.seq + 1
			}
			f.Revoked = gone[:len(gone):len(gone)]
			if expected < seq { // the lease of seq is gone, and so are those just before it
				f.Revoked = append(f.Revoked, Range{expected, seq - 1})
			}
		}
		fences[i] = f
	}
	return fences
}
