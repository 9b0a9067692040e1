package fleet

import (
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// Split implements [sema.Permit.Split]. The store assigns a new Seq to the rest, so that a
// guard rejects a part that was released and admits the other. It fails with
// ErrUnavailable if the store does not reply within TryTimeout; the permit is then whole.
// The parts of a rate's permit and of a region's block need no fences, so that no request
// is sent.
func (l *lease) Split(n int64) (first, rest sema.Lease, err error) {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	if g.block || g.peer.Config().Kind == protocol.Rate {
		settled := l.settled
		l.settled = true // the parts are settled instead
		s.mu.Unlock()
		return &lease{grant: g, weight: n, settled: settled}, &lease{grant: g, weight: l.weight - n, settled: settled}, nil
	}
	if err := l.checkSplittableLocked(); err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	start, w := time.Now(), s.requestSplitLocked(g, l.weight-n)
	s.mu.Unlock()
	limit := time.NewTimer(s.settings.tryTimeout)
	defer limit.Stop()
	select {
	case r := <-w.ended:
		return l.divide(n, r)
	case <-limit.C:
	}
	s.mu.Lock()
	if s.waiters[w.op.Ticket] == w {
		w.of = g // attachLocked handles the result
		s.mu.Unlock()
		return nil, nil, s.unavailableError(&call{op: "split", req: protocol.Op{Weight: l.weight}, start: start})
	}
	s.mu.Unlock()
	return l.divide(n, <-w.ended)
}

// checkSplittableLocked fails if the lease cannot be split now.
func (l *lease) checkSplittableLocked() error {
	g, s := l.grant, l.grant.of
	switch err := l.failureLocked(); {
	case err != nil:
		return err
	case g.splitPending || len(g.parts) > 0:
		return s.fault("split", l.weight, sema.ErrUnavailable, "an earlier split got no reply in time")
	case s.leases[g.fence.Seq] != g:
		return s.fault("split", l.weight, sema.ErrLost, "the lease was revoked")
	}
	return nil
}

// requestSplitLocked adds a split to the next batch.
func (s *exact) requestSplitLocked(g *grant, weight int64) *waiter {
	w := &waiter{op: &protocol.Op{Verb: protocol.Split, Ticket: s.newTicketLocked(), Lease: g.fence.Seq, Weight: weight}, ended: make(chan result, 1)}
	g.splitPending = true
	s.waiters[w.op.Ticket] = w
	s.requestLocked(*w.op)
	return w
}

// divide returns the two parts of a lease after the store's reply.
func (l *lease) divide(n int64, r result) (first, rest sema.Lease, err error) {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	defer s.mu.Unlock()
	g.splitPending = false
	if r.err != nil {
		if lost := l.failureLocked(); lost != nil {
			return nil, nil, lost
		}
		return nil, nil, s.fault("split", l.weight, r.err, "")
	}
	g.held = n
	r.lease.grant.since = g.since
	first = &lease{grant: g, weight: n, slots: l.slots[:min(int(n), len(l.slots))]} // the store splits off the highest numbers
	return first, r.lease, nil
}

// attachLocked attaches a part to its lease if the store has split it off after the caller
// gave up. It releases the part if the lease was released before.
func (s *exact) attachLocked(g *grant, f protocol.Result) {
	g.splitPending = false
	switch {
	case f.Kind != protocol.Granted:
	case s.leases[g.fence.Seq] == g:
		g.parts = append(g.parts, f.Lease)
	case g.peer == s.peer:
		s.releaseLocked(protocol.Op{Verb: protocol.Release, Lease: f.Lease})
	}
}

// endSplitsLocked ends the splits of a lost session.
func (s *exact) endSplitsLocked() {
	for ticket, w := range s.waiters {
		if w.op.Verb == protocol.Split {
			delete(s.waiters, ticket)
			w.ended <- result{err: sema.ErrLost}
		}
	}
}
