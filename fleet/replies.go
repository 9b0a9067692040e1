package fleet

import (
	"errors"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// unfit returns why a stored configuration cannot be used here.
func (s *session) unfit(stored protocol.Config) error {
	switch {
	case s.settings.mode == ModePooled && stored.Kind == protocol.Rate:
		return errors.New("it is a rate, which cannot be pooled")
	case s.lender != nil:
		return s.lender.accepts(stored)
	}
	return nil
}

// noteConfig notes the configuration of a reply. The mutex is held.
func (s *session) noteConfig(c protocol.Config) {
	before, known := s.last.Config, s.last.Config.TTL != 0
	if c.Draining && !before.Draining {
		s.failOpen.requeue()
	}
	s.last.Config = c
	s.capacity.Store(max(c.Capacity, c.Whole))
	switch {
	case known && c.Capacity != before.Capacity:
		s.report(sema.Event{Kind: sema.EventResized, Capacity: c.Capacity})
	case known && c.Draining && !before.Draining:
		s.report(sema.Event{Kind: sema.EventDrained})
	}
	s.strategy.reconfigured()
}

// tooLarge reports whether more is asked for than can ever be granted, as far as is
// known. The mutex is held.
func (s *session) tooLarge(n int64) bool {
	capacity := s.capacity.Load()
	return s.last.Config.TTL != 0 && capacity > 0 && n > capacity
}

// A lender lends permits on. Both methods are called with the session's mutex held.
type lender interface {
	accepts(stored protocol.Config) error
	heard(protocol.Reply)
}

// connected reports whether there is a session.
func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer != nil
}

// tellLender passes a reply on to the lender. The mutex is held.
func (s *session) tellLender(r protocol.Reply) {
	if s.lender != nil {
		s.lender.heard(r)
	}
}

// resolve handles one result. The mutex is held.
func (s *session) resolve(f protocol.Result) {
	var w *waiter
	if f.Kind != protocol.Revoked {
		w = s.removeLocked(f.Ticket)
	}
	if w == nil || w.of != nil || f.Kind == protocol.Granted {
		s.strategy.resolve(w, f)
		return
	}
	r := result{err: f.Kind.Err()}
	if protocol.MayChange(r.err) {
		r.after = micros(s.last.Undecided)
	}
	w.ended <- r
}

// noteQueued notifies the callers whose requests were sent and are not decided. The
// mutex is held.
func (s *session) noteQueued(ops []protocol.Op) {
	for _, op := range ops {
		if w := s.waiters[op.Ticket]; w != nil && !op.Try && op.Verb == protocol.Acquire {
			s.tally.queue(w.call)
			w.noteQueued()
		}
	}
}

// rejectAll ends all waits. The mutex is held.
func (s *session) rejectAll(why error) {
	for ticket, w := range s.waiters {
		if w.op.Verb == protocol.Split { // which the permit that it splits would not survive whole
			continue
		}
		s.removeLocked(ticket).ended <- result{err: why}
		s.cancel(ticket)
	}
	s.strategy.reject(why)
}

// waits reports whether a request of this client is queued or to be sent. The mutex is
// held.
func (s *session) waits() bool { return len(s.waiters) > 0 || s.strategy.pending().Ticket != 0 }

// lose ends the session: its leases are lost, and waiters are queued in the next one.
// The mutex is held.
func (s *session) lose(why string) {
	unconfirmed := int64(s.peer.Unheard(protocol.Release))
	s.counts.Unconfirmed += unconfirmed
	if why != errForgotten.Error() { // or it is known that nothing is held
		s.ending.unconfirmed += unconfirmed
	}
	s.peer = nil
	s.counts.SessionsLost++
	s.tellLender(protocol.Reply{Config: s.last.Config})
	s.strategy.lose(why)
	s.endFlushes(why)
}

// loseIfEnded notices the end of the session before the driver does. The mutex is held.
func (s *session) loseIfEnded() {
	if s.peer != nil && s.peer.Ended(s.client.clock()) {
		s.lose(unrenewed)
	}
}
