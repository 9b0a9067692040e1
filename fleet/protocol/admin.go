package protocol

import (
	"errors"
	"fmt"
)

// ErrConflict is for a change that is based on an older version of the
// configuration.
var ErrConflict = errors.New("configuration was changed meanwhile")

// Configure changes the configuration. The new one names the version it is
// based on. What is out stays out; those in line who can never be served now
// are refused.
func (s *State) Configure(now Micros, c Config) (Config, error) {
	s.begin(now)
	if err := c.Check(); err != nil {
		return s.config, err
	}
	switch {
	case c.Version != s.config.Version:
		return s.config, s.conflict(c.Version)
	case c.TTL != s.config.TTL || c.Kind != s.config.Kind || c.Window != s.config.Window || c.Numbered != s.config.Numbered:
		return s.config, errors.New("kind, TTL, window and numbering are fixed when a semaphore is created")
	case c.Protocol < s.config.Protocol || c.Protocol > s.config.Protocol+1:
		return s.config, fmt.Errorf("protocol %d: it is %d, and can be raised by one, once nobody uses an older one", c.Protocol, s.config.Protocol)
	}
	s.ramp = ramp{from: min(s.effective(), c.Capacity), at: s.last}
	c.Version++
	s.config = c
	s.journal.matter()
	s.hinted = nil
	s.refuseAll(func(t *ticket) ResultKind {
		switch {
		case s.config.Draining:
			return Draining
		case s.tooLarge(t.least):
			return TooLarge
		}
		return 0
	})
	s.settle()
	return s.config, nil
}

// CheckVersion fails with [ErrConflict] if the configuration has another version than
// that; 0 is any.
func (s *State) CheckVersion(version uint64) error {
	if version != 0 && version != s.config.Version {
		return s.conflict(version)
	}
	return nil
}

func (s *State) conflict(expected uint64) error {
	return fmt.Errorf("%w: it has version %d, not %d", ErrConflict, s.config.Version, expected)
}

// Revoke takes a lease away. Its holder is told, and the permits are free when
// it has acknowledged that or died; or at once, which lets others in while it
// may still be at work. The note tells the holder by whom and why. It reports
// whether there was such a lease.
func (s *State) Revoke(now Micros, seq Seq, atOnce bool, note string) bool {
	s.begin(now)
	l := s.leases[seq]
	if l == nil {
		return false
	}
	if !l.revoked {
		l.revoked = true
		s.journal.lease(seq)
		s.tell(l.session, Result{Kind: Revoked, Lease: seq, Note: note})
	}
	if atOnce {
		s.drop(l)
	}
	s.settle()
	return true
}

// A Snapshot is a semaphore at one moment, for people.
type Snapshot struct {
	Config    Config
	Effective int64 // the capacity now, on the way to the target
	InUse     int64
	Sessions  []SessionInfo
	Leases    []LeaseInfo  // by Seq
	Queue     []TicketInfo // in order
}

// A SessionInfo is a session in a [Snapshot].
type SessionInfo struct {
	Session Session
	Client  Client
	Owner   Owner
	Renewed Micros // when its last batch was applied
}

// A LeaseInfo is a lease in a [Snapshot].
type LeaseInfo struct {
	Seq     Seq
	Session Session
	Weight  int64
	Since   Micros
	Pooled  bool
	Revoked bool
	Slots   Slots // of a Numbered semaphore
	Details Details
}

// A TicketInfo is a waiter in a [Snapshot].
type TicketInfo struct {
	Ticket  Ticket
	Session Session
	Weight  int64
	Since   Micros // when it was queued, on the store's clock
	Details Details
}

// Inspect is the state as it is now. It notices what time has changed, so that
// who looks again and again sees the dead leave though nobody else speaks.
func (s *State) Inspect(now Micros) Snapshot {
	s.begin(now)
	return s.Snapshot()
}

// Snapshot is the state as it was when somebody last spoke.
func (s *State) Snapshot() Snapshot {
	snapshot := Snapshot{Config: s.config, Effective: s.effective(), InUse: s.inUse}
	for r := range s.byRenewal.All {
		snapshot.Sessions = append(snapshot.Sessions, SessionInfo{r.id, r.client, r.owner, r.renewed})
	}
	for l := range s.live.All {
		snapshot.Leases = append(snapshot.Leases, LeaseInfo{l.seq, l.session.id, l.weight, l.since, l.pooled, l.revoked, l.slots, l.details})
	}
	for t := range s.line.All {
		snapshot.Queue = append(snapshot.Queue, TicketInfo{t.id, t.session.id, t.weight, t.since, t.details})
	}
	return snapshot
}
