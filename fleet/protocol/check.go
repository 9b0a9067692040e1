package protocol

import "fmt"

// Check returns an error if the state violates an invariant. It examines everything, and is
// for tests and for stores that have loaded a state.
func (s *State) Check() error {
	if err := s.checkSessions(); err != nil {
		return err
	}
	if err := s.checkLeases(); err != nil {
		return err
	}
	return s.checkQueue()
}

func (s *State) checkSessions() error {
	if s.byRenewal.Len() != len(s.sessions) {
		return fmt.Errorf("%d sessions, %d by renewal", len(s.sessions), s.byRenewal.Len())
	}
	pools, recalled, last := 0, 0, Micros(0)
	for r := range s.byRenewal.All {
		if s.sessions[r.id] != r || r.id > s.lastSession {
			return fmt.Errorf("session %d is unknown", r.id)
		}
		if r.deadline < last {
			return fmt.Errorf("session %d is out of order", r.id)
		}
		last = r.deadline
		switch {
		case r.recalled:
			recalled++
		case r.pooled > 0:
			pools++
		}
		if r.recalled && r.pooled == 0 {
			return fmt.Errorf("session %d is recalled without blocks", r.id)
		}
		for i, f := range r.results {
			if f.N > r.lastResult || i > 0 && f.N <= r.results[i-1].N {
				return fmt.Errorf("session %d: result %d is out of order", r.id, f.N)
			}
		}
	}
	if pools != s.pools.Len() || recalled != s.recalled.Len() {
		return fmt.Errorf("%d sessions with blocks and %d recalled, listed %d and %d", pools, recalled, s.pools.Len(), s.recalled.Len())
	}
	return nil
}

func (s *State) checkLeases() error {
	weights, last, owned := int64(0), Seq(0), 0
	for l := range s.live.All {
		if s.leases[l.seq] != l || l.session.leases[l.seq] != l || s.sessions[l.session.id] != l.session {
			return fmt.Errorf("lease %d has no session", l.seq)
		}
		if l.weight <= 0 || l.seq <= last || l.seq > s.lastSeq {
			return fmt.Errorf("lease %d of weight %d follows lease %d", l.seq, l.weight, last)
		}
		last = l.seq
		weights += l.weight
	}
	for _, spent := range s.spent {
		weights += spent.weight
	}
	if weights != s.inUse {
		return fmt.Errorf("%d in use, %d leased or spent", s.inUse, weights)
	}
	for _, r := range s.sessions {
		owned += len(r.leases)
	}
	if owned != len(s.leases) || s.live.Len() != len(s.leases) {
		return fmt.Errorf("%d leases, %d owned, %d in order", len(s.leases), owned, s.live.Len())
	}
	return nil
}

func (s *State) checkQueue() error {
	waiting, wanted := 0, int64(0)
	for _, r := range s.sessions {
		waiting += len(r.tickets)
	}
	if waiting != s.queue.Len() {
		return fmt.Errorf("%d queued, %d tickets", s.queue.Len(), waiting)
	}
	for t := range s.queue.All {
		if t.session.tickets[t.id] != t || s.sessions[t.session.id] != t.session {
			return fmt.Errorf("ticket %d of session %d has no session", t.id, t.session.id)
		}
		wanted += t.least
		if s.config.Draining || s.tooLarge(t.least) {
			return fmt.Errorf("ticket %d of session %d can never be granted", t.id, t.session.id)
		}
	}
	if wanted != s.wanted {
		return fmt.Errorf("%d wanted, not %d", wanted, s.wanted)
	}
	if first := s.first(); first != nil && s.fits(first.least) && !s.more {
		return fmt.Errorf("ticket %d of session %d could be granted", first.id, first.session.id)
	}
	return nil
}
