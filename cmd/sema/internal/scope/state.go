package scope

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A State is the state of a semaphore at one moment, for users and scripts. Its JSON has the
// names of the HTTP API.
type State struct {
	Name        string        `json:"name"`
	Kind        string        `json:"kind"` // "concurrency" or "rate"
	Capacity    int64         `json:"capacity"`
	Effective   int64         `json:"effective_capacity"` // below the capacity while a ramp raises it
	InUse       int64         `json:"in_use"`
	Free        int64         `json:"free"`
	Waiting     int           `json:"waiting"`
	Draining    bool          `json:"draining"`
	Numbered    bool          `json:"numbered"`           // leases have slots
	Declared    bool          `json:"declared,omitempty"` // a server has declared it, and no client has used it yet
	TTL         Duration      `json:"ttl,omitzero"`
	Window      Duration      `json:"window,omitzero"` // of a rate
	Ramp        int64         `json:"ramp,omitempty"`
	MaxWaiters  *MaxWaiters   `json:"max_waiters,omitempty"` // nil: no bound
	Times       *Times        `json:"times,omitempty"`       // nil: nothing is known
	Holders     []Participant `json:"holders,omitzero"`
	Waiters     []Participant `json:"waiters,omitempty"` // in queue order; unknown on a host
	MoreHolders int           `json:"more_holders,omitempty"`
	MoreWaiters int           `json:"more_waiters,omitempty"`
}

// Status returns the state as a single word.
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

// Equal reports whether two states are equal, ignoring heartbeats and measured times.
func (s State) Equal(o State) bool {
	equal := func(a, b Participant) bool {
		a.Seen, b.Seen = time.Time{}, time.Time{}
		return a == b
	}
	if (s.MaxWaiters == nil) != (o.MaxWaiters == nil) || s.MaxWaiters != nil && *s.MaxWaiters != *o.MaxWaiters {
		return false
	}
	return s.Name == o.Name && s.Kind == o.Kind && s.Capacity == o.Capacity && s.Effective == o.Effective && s.InUse == o.InUse && s.Free == o.Free &&
		s.Waiting == o.Waiting && s.Draining == o.Draining && s.Numbered == o.Numbered && s.Declared == o.Declared && s.TTL == o.TTL && s.Window == o.Window && s.Ramp == o.Ramp &&
		slices.EqualFunc(s.Holders, o.Holders, equal) && slices.EqualFunc(s.Waiters, o.Waiters, equal)
}

// Cut returns the state with at most limit holders and waiters (0: all), and only with holders
// after a lease (0: all).
func (s State) Cut(after uint64, limit int) State {
	if after != 0 {
		s.Holders = slices.DeleteFunc(slices.Clone(s.Holders), func(p Participant) bool { return p.Lease <= after })
	}
	if limit > 0 && len(s.Holders) > limit {
		s.Holders, s.MoreHolders = s.Holders[:limit], len(s.Holders)-limit
	}
	if limit > 0 && len(s.Waiters) > limit {
		s.Waiters, s.MoreWaiters = s.Waiters[:limit], len(s.Waiters)-limit
	}
	return s
}

// A Participant is a holder or a waiter.
type Participant struct {
	Lease   uint64    `json:"lease,omitempty"` // number for Revoke
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since,omitzero"` // when it acquired the permit, or was queued
	Seen    time.Time `json:"seen,omitzero"`  // time of the last heartbeat; the lease expires a TTL later
	Host    string    `json:"host,omitempty"`
	Process int       `json:"process,omitempty"`
	About   string    `json:"about,omitempty"` // its command, or the description and labels of the program
	Revoked bool      `json:"revoked,omitempty"`
	Pooled  bool      `json:"pooled,omitempty"`
	Slots   Slots     `json:"slots,omitempty"` // "": the semaphore is not numbered
}

// For returns how long the permit has been held, or the waiter has been queued, at a time. It is
// never negative, although clocks differ.
func (p Participant) For(now time.Time) time.Duration {
	if p.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(p.Since))
}

// Slots contains the numbers of the permits of a lease on a numbered semaphore, as text: 0-3,7.
// In JSON it is a list.
type Slots string

// SlotsOf returns ascending numbers as text.
func SlotsOf(numbers []int64) Slots { return Slots(protocol.NewSlots(numbers)) }

// MarshalJSON implements [json.Marshaler]. Numbers of a host may be higher than those of a store.
func (s Slots) MarshalJSON() ([]byte, error) {
	numbers := []int64{}
	for part := range strings.SplitSeq(string(s), ",") {
		low, high, _ := strings.Cut(part, "-")
		first, err := strconv.ParseInt(low, 10, 64)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseInt(cmp.Or(high, low), 10, 64)
		if err != nil {
			return nil, err
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return json.Marshal(numbers)
}

// A MaxWaiters bounds the queue; 0: no waiters.
type MaxWaiters int64

// Stored converts the bound to its stored form: [sema.NoWaiters] for 0, and 0 for no bound.
func (m *MaxWaiters) Stored() int64 {
	switch {
	case m == nil || *m < 0:
		return 0
	case *m == 0:
		return sema.NoWaiters
	}
	return int64(*m)
}

// maxWaiters converts the bound of a stored configuration.
func maxWaiters(stored int64) *MaxWaiters {
	if stored == 0 {
		return nil
	}
	bound := MaxWaiters(max(0, stored))
	return &bound
}

// NoBound removes the bound, in a [Change].
const NoBound MaxWaiters = -1

// A Duration is a duration that JSON represents as text: "15s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
