package server

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/paging"
)

// The values of kind in the API.
const (
	concurrencyKind = "concurrency"
	rateKind        = "rate"
)

// A summary is a semaphore without its holders and waiters. Names and units are those of
// JSON. RPC has the same names, see docs/service.md.
type summary struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Capacity   int64   `json:"capacity"`
	Effective  int64   `json:"effective_capacity"` // below the capacity while a ramp raises it
	InUse      int64   `json:"in_use"`
	Waiting    int64   `json:"waiting"`
	Draining   bool    `json:"draining"`
	Ramp       int64   `json:"ramp"`
	MaxWaiters *int64  `json:"max_waiters,omitempty"` // nil: no bound; 0: no waiters
	TTL        seconds `json:"ttl"`
	Window     seconds `json:"window,omitempty"`
	Version    uint64  `json:"version"`
	Numbered   bool    `json:"numbered"`        // leases have slots
	Times      *times  `json:"times,omitempty"` // nil: not measured
}

// An info is a semaphore with a page of its holders and waiters.
type info struct {
	summary
	Holders []holder `json:"holders"`
	Waiters []waiter `json:"waiters"`
	Next    string   `json:"next,omitempty"` // cursor of the next page; "": last page
}

// A holder is a lease as all readers of the semaphore see it.
type holder struct {
	Lease   uint64    `json:"lease"` // its number; only the holder knows the id
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"` // time of the last heartbeat
	source
	Pooled  bool     `json:"pooled"`          // a block of permits that a process shares among its callers
	Revoked bool     `json:"revoked"`         // revoked, and not yet confirmed by the holder
	Slots   []uint32 `json:"slots,omitempty"` // numbers of its permits, ascending; nil: the semaphore is not numbered
}

// A source describes the client of an acquire.
type source struct {
	Holder   string `json:"holder"`   // free text from the client, unchanged
	By       string `json:"by"`       // name of the client's token or certificate; "": none
	Site     string `json:"site"`     // file and line; Go clients only
	Labels   string `json:"labels"`   // Go clients only
	Instance string `json:"instance"` // the process that receives notifications
	Host     string `json:"host"`
	Process  int64  `json:"process"` // process id; 0: unknown
}

func newSource(c protocol.Client, d protocol.Details) source {
	return source{Holder: d.Holder, By: d.By, Site: d.Site, Labels: d.Labels, Instance: c.Instance, Host: c.Host, Process: c.Process}
}

// slotsOf returns the numbers of slots, or nil if they cannot be parsed.
func slotsOf(s protocol.Slots) (numbers []uint32) {
	all, _ := s.Numbers()
	for _, n := range all {
		numbers = append(numbers, uint32(n))
	}
	return numbers
}

func instant(m protocol.Micros) time.Time { return time.UnixMicro(int64(m)).UTC() }

// A waiter is a queued acquire.
type waiter struct {
	Weight int64     `json:"weight"`
	Since  time.Time `json:"since"` // when it was queued
	source
}

func newSummary(s protocol.Summary) summary {
	c := s.Config
	t := summary{
		Name: s.Name, Kind: concurrencyKind, Capacity: c.Capacity, Effective: s.Effective, InUse: s.InUse, Waiting: s.Waiting, Draining: c.Draining,
		Ramp: c.Ramp, MaxWaiters: maxWaiters(c.MaxWaiters).shown(), TTL: seconds(span(c.TTL)), Window: seconds(span(c.Window)), Version: c.Version, Numbered: c.Numbered,
	}
	if c.Kind == protocol.Rate {
		t.Kind = rateKind
	}
	return t
}

// newInfo returns one page of a snapshot.
func newInfo(name string, s protocol.Snapshot, p page) (info, error) {
	held, queued, next, ok := paging.Cut(s, p.after, p.size())
	if !ok {
		return info{}, invalid("after: %s: want next of the previous page", quote(p.after))
	}
	t := info{newSummary(s.Summary(name)), make([]holder, len(held)), make([]waiter, len(queued)), next}
	sessions := make(map[protocol.Session]protocol.SessionInfo, len(s.Sessions))
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for i, l := range held {
		session := sessions[l.Session]
		t.Holders[i] = holder{
			Lease: uint64(l.Seq), Weight: l.Weight, Since: instant(l.Since), Renewed: instant(session.Renewed), source: newSource(session.Client, l.Details),
			Pooled: l.Pooled, Revoked: l.Revoked, Slots: slotsOf(l.Slots),
		}
	}
	for i, q := range queued {
		t.Waiters[i] = waiter{Weight: q.Weight, Since: instant(q.Since), source: newSource(sessions[q.Session].Client, q.Details)}
	}
	return t, nil
}
