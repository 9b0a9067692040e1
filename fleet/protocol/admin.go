package protocol

import (
	"errors"
	"fmt"
)

// ErrConflict means that a change is based on an older version of the configuration.
var ErrConflict = errors.New("configuration was changed meanwhile")

// Configure changes the configuration; c.Version is the version that the change is based on.
// It revokes nothing, and rejects queued tickets that can never be granted any more.
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
		return s.config, fmt.Errorf("protocol %d: want %d, or %d once no client uses an older version", c.Protocol, s.config.Protocol, s.config.Protocol+1)
	}
	s.ramp = ramp{from: min(s.effective(), c.Capacity), at: s.last}
	c.Version++
	s.config = c
	s.journal.markVital()
	s.notifiedFirst = nil
	s.rejectAll(func(t *ticket) ResultKind {
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

// CheckVersion returns [ErrConflict] if the configuration has another version than the given
// one; 0 matches any version.
func (s *State) CheckVersion(version uint64) error {
	if version != 0 && version != s.config.Version {
		return s.conflict(version)
	}
	return nil
}

func (s *State) conflict(expected uint64) error {
	return fmt.Errorf("%w: it has version %d, not %d", ErrConflict, s.config.Version, expected)
}

// Revoke revokes a lease and reports whether the lease existed. Its holder is notified with
// the note, which names the operator and the reason. The permits are free when the holder
// has acknowledged the revocation or its session has expired. With atOnce they are free
// immediately, although the holder may still be at work.
func (s *State) Revoke(now Micros, seq Seq, atOnce bool, note string) bool {
	s.begin(now)
	l := s.leases[seq]
	if l == nil {
		return false
	}
	if !l.revoked {
		l.revoked = true
		s.journal.lease(seq)
		s.addResult(l.session, Result{Kind: Revoked, Lease: seq, Note: note})
	}
	if atOnce {
		s.removeLease(l)
	}
	s.settle()
	return true
}

// A Snapshot is the state of a semaphore at one moment, for display.
type Snapshot struct {
	Config    Config
	Effective int64 // the current capacity, which may be rising to the target
	InUse     int64
	Sessions  []SessionInfo
	Leases    []LeaseInfo  // by Seq
	Queue     []TicketInfo // in order of arrival
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

// Inspect returns the state as of now. It ends expired sessions, so that a caller that polls
// sees them leave although no batch arrives.
func (s *State) Inspect(now Micros) Snapshot {
	s.begin(now)
	return s.Snapshot()
}

// Snapshot returns the state as of the last call.
func (s *State) Snapshot() Snapshot {
	snapshot := Snapshot{Config: s.config, Effective: s.effective(), InUse: s.inUse}
	for r := range s.byRenewal.All {
		snapshot.Sessions = append(snapshot.Sessions, SessionInfo{r.id, r.client, r.owner, r.renewed})
	}
	for l := range s.live.All {
		info := LeaseInfo{Seq: l.seq, Session: l.session.id, Weight: l.weight, Since: l.since, Pooled: l.pooled, Revoked: l.revoked, Slots: l.slots}
		if l.details != nil {
			info.Details = *l.details
		}
		snapshot.Leases = append(snapshot.Leases, info)
	}
	for t := range s.queue.All {
		info := TicketInfo{Ticket: t.id, Session: t.session.id, Weight: t.weight, Since: t.since}
		if t.details != nil {
			info.Details = *t.details
		}
		snapshot.Queue = append(snapshot.Queue, info)
	}
	return snapshot
}
