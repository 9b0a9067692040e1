package fleet

import (
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// Split implements [sema.Permit.Split]. The rest gets a Seq of its own from the
// store, so that a guard rejects a part that was released while it admits the other.
// It fails with ErrUnavailable if the store does not reply within TryTimeout; the
// permit is then whole. The parts of a rate's permit and of a region's block need no
// fences, and the store is not asked.
func (l *lease) Split(n int64) (first, rest sema.Lease, err error) {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	if g.block || g.peer.Config().Kind == protocol.Rate {
		s.mu.Unlock()
		return &lease{grant: g, weight: n}, &lease{grant: g, weight: l.weight - n}, nil
	}
	if err := l.splittable(); err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	start, w := time.Now(), s.askSplit(g, l.weight-n)
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
		w.of = g // which takes the result
		s.mu.Unlock()
		return nil, nil, s.silence(&call{op: "split", req: protocol.Op{Weight: l.weight}, start: start})
	}
	s.mu.Unlock()
	return l.divide(n, <-w.ended)
}

// splittable returns why the lease cannot be split now. The mutex is held.
func (l *lease) splittable() error {
	g, s := l.grant, l.grant.of
	switch err := l.failure(); {
	case err != nil:
		return err
	case g.splits || len(g.parts) > 0:
		return s.fault("split", l.weight, sema.ErrUnavailable, "an earlier split got no reply in time")
	case s.leases[g.fence.Seq] != g:
		return s.fault("split", l.weight, sema.ErrLost, "it was revoked")
	}
	return nil
}

// askSplit puts a split into the next batch. The mutex is held.
func (s *exact) askSplit(g *grant, weight int64) *waiter {
	w := &waiter{op: protocol.Op{Verb: protocol.Split, Ticket: s.newTicketLocked(), Lease: g.fence.Seq, Weight: weight}, ended: make(chan result, 1)}
	g.splits = true
	s.waiters[w.op.Ticket] = w
	s.request(w.op)
	return w
}

// divide returns the two parts of a lease after the store has replied.
func (l *lease) divide(n int64, r result) (first, rest sema.Lease, err error) {
	g, s := l.grant, l.grant.of
	s.mu.Lock()
	defer s.mu.Unlock()
	g.splits = false
	if r.err != nil {
		if lost := l.failure(); lost != nil {
			return nil, nil, lost
		}
		return nil, nil, s.fault("split", l.weight, r.err, "")
	}
	g.held = n
	r.lease.grant.since = g.since
	return &lease{grant: g, weight: n}, r.lease, nil
}

// attach keeps what the store has split off a lease after the caller gave up, or
// releases it if the lease is released already. The mutex is held.
func (s *exact) attach(g *grant, f protocol.Result) {
	g.splits = false
	switch {
	case f.Kind != protocol.Granted:
	case s.leases[g.fence.Seq] == g:
		g.parts = append(g.parts, f.Lease)
	case g.peer == s.peer:
		s.release(protocol.Op{Verb: protocol.Release, Lease: f.Lease})
	}
}

// endSplits ends the splits of a session that is lost. The mutex is held.
func (s *exact) endSplits() {
	for ticket, w := range s.waiters {
		if w.op.Verb == protocol.Split {
			delete(s.waiters, ticket)
			w.ended <- result{err: sema.ErrLost}
		}
	}
}
