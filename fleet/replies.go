package fleet

import (
	"errors"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// checkUsable fails if this client cannot use a stored configuration.
func (s *session) checkUsable(stored protocol.Config) error {
	switch {
	case s.settings.mode == ModePooled && stored.Kind == protocol.Rate:
		return errors.New("the semaphore is a rate, which cannot be pooled")
	case s.lender != nil:
		return s.lender.checkConfig(stored)
	case stored.Numbered:
		return s.settings.checkNumbered()
	}
	return nil
}

// noteConfigLocked handles the configuration in a reply.
func (s *session) noteConfigLocked(c protocol.Config) {
	before, known := s.last.Config, s.knownConfigLocked()
	if c.Draining && !before.Draining {
		s.failOpen.requeueLocked()
	}
	s.last.Config = c
	s.capacity.Store(max(c.Capacity, c.Whole))
	switch {
	case known && c.Capacity != before.Capacity:
		s.report(sema.Event{Kind: sema.EventResized, Capacity: c.Capacity})
	case known && c.Draining && !before.Draining:
		s.report(sema.Event{Kind: sema.EventDrained})
	}
	s.strategy.reconfiguredLocked()
}

// tooLargeLocked reports whether n exceeds the capacity. It returns false if the capacity is
// unknown, or 0 (paused).
func (s *session) tooLargeLocked(n int64) bool {
	capacity := s.capacity.Load()
	return s.knownConfigLocked() && capacity > 0 && n > capacity
}

// A lender leases blocks to grant them to others. The session's mutex is held when its
// methods are called.
type lender interface {
	checkConfig(stored protocol.Config) error
	noteGlobalReply(protocol.Reply)
}

// connected reports whether a session is open.
func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer != nil
}

// notifyLenderLocked passes a reply on to the lender, if there is one.
func (s *session) notifyLenderLocked(r protocol.Reply) {
	if s.lender != nil {
		s.lender.noteGlobalReply(r)
	}
}

// resolveLocked handles one result.
func (s *session) resolveLocked(f protocol.Result) {
	var w *waiter
	if f.Kind != protocol.Revoked {
		w = s.removeLocked(f.Ticket)
	}
	if w == nil || w.of != nil || f.Kind == protocol.Granted {
		s.strategy.resolveLocked(w, f)
		return
	}
	r := result{err: f.Kind.Err()}
	if protocol.MayChange(r.err) {
		r.after = micros(s.last.Undecided)
	}
	w.ended <- r
}

// noteQueuedLocked notifies the callers of undecided requests that they are queued.
func (s *session) noteQueuedLocked(ops []protocol.Op) {
	for _, op := range ops {
		if w := s.waiters[op.Ticket]; w != nil && !op.Try && op.Verb == protocol.Acquire {
			s.tally.queue(w.call)
			w.noteQueued()
		}
	}
}

// rejectAllLocked ends all waits with an error.
func (s *session) rejectAllLocked(why error) {
	for ticket, w := range s.waiters {
		if w.op.Verb == protocol.Split { // it might still take effect at the store
			continue
		}
		s.removeLocked(ticket).ended <- result{err: why}
		if !w.held {
			s.cancelLocked(ticket)
		}
	}
	s.strategy.rejectLocked(why)
}

// waitsLocked reports whether a request is queued at the store, or is to be sent.
func (s *session) waitsLocked() bool {
	return s.requestedLocked() || s.strategy.pendingLocked().Ticket != 0
}

// requestedLocked reports whether a caller waits whose request is not held by a pause.
func (s *session) requestedLocked() bool {
	if s.pause.until == 0 {
		return len(s.waiters) > 0
	}
	for _, w := range s.waiters {
		if !w.held {
			return true
		}
	}
	return false
}

// loseLocked ends a lost session: its leases are lost, and waiters are queued again in the
// next session.
func (s *session) loseLocked(why string) {
	unconfirmed := int64(s.peer.Unconfirmed(protocol.Release))
	s.counts.Unconfirmed += unconfirmed
	if why != errUnknownSession.Error() { // a store without the session has nothing left to release
		s.ending.unconfirmed += unconfirmed
	}
	s.highest = s.peer.Highest()
	charges := s.peer.Charges()
	s.peer = nil
	s.oweLocked(charges)
	s.forgetAnchorLocked()
	s.counts.SessionsLost++
	s.notifyLenderLocked(protocol.Reply{Config: s.last.Config})
	s.strategy.loseLocked(why)
	s.endFlushesLocked(why)
}

// loseIfEndedLocked ends the session if it has expired, before the driver does.
func (s *session) loseIfEndedLocked() {
	if s.peer != nil && s.peer.Ended(s.client.clock()) {
		s.loseLocked(reasonNotRenewed)
	}
}
