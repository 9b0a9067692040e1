package scope

import (
	"time"
)

// A State is a semaphore at one moment, as people and scripts read it.
type State struct {
	Name       string        `json:"name"`
	Capacity   int64         `json:"capacity"`
	Effective  int64         `json:"effective_capacity"` // on the way to the capacity, if that rises
	InUse      int64         `json:"in_use"`
	Free       int64         `json:"free"`
	Waiting    int           `json:"waiting"`
	Draining   bool          `json:"draining"`
	Kind       string        `json:"kind"` // "concurrency" or "rate"
	TTL        Duration      `json:"ttl,omitzero"`
	Window     Duration      `json:"window,omitzero"` // of a rate
	Ramp       int64         `json:"ramp,omitempty"`
	MaxWaiters int64         `json:"max_waiters,omitempty"`
	Holders    []Participant `json:"holders,omitzero"`
	Line       []Participant `json:"line,omitempty"` // where it is known who waits
}

// Status is the state in a word.
func (s State) Status() string {
	switch {
	case s.Draining:
		return "draining"
	case s.Capacity == 0:
		return "paused"
	case s.Effective != s.Capacity:
		return "rising"
	case s.Free == 0:
		return "full"
	}
	return "open"
}

// A Participant is somebody who holds, or waits.
type Participant struct {
	Lease   uint64    `json:"lease,omitempty"` // by which revoke knows it
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since,omitzero"`
	Seen    time.Time `json:"seen,omitzero"` // when it was last heard of; after a TTL it is dead, and its permits go to who asks next
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	About   string    `json:"about,omitempty"` // a command, or what the program says of itself
	Revoked bool      `json:"revoked,omitempty"`
	Pooled  bool      `json:"pooled,omitempty"`
}

// A Duration is one that JSON has as text: "15s".
type Duration time.Duration

// MarshalText is for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// For is how long ago it was, never in the future: clocks differ.
func (p Participant) For() time.Duration {
	if p.Since.IsZero() {
		return 0
	}
	return max(0, time.Since(p.Since))
}
