package server

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/paging"
)

// The kinds of semaphores.
const (
	concurrencyKind = "concurrency"
	rateKind        = "rate"
)

// A summary is a semaphore without its holders and waiters. The names and units are those
// of JSON; RPC has the same names, see docs/service.md.
type summary struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Capacity   int64   `json:"capacity"`
	Effective  int64   `json:"effective_capacity"` // on the way to the capacity, with a ramp
	InUse      int64   `json:"in_use"`
	Waiting    int64   `json:"waiting"`
	Draining   bool    `json:"draining"`
	Ramp       int64   `json:"ramp"`
	MaxWaiters *int64  `json:"max_waiters,omitempty"` // nil: no bound; 0: nobody waits
	TTL        seconds `json:"ttl"`
	Window     seconds `json:"window,omitempty"`
	Version    uint64  `json:"version"`
}

// An info is a semaphore with a page of its holders and waiters.
type info struct {
	summary
	Holders []holder `json:"holders"`
	Waiters []waiter `json:"waiters"`
	Next    string   `json:"next,omitempty"` // the cursor of the next page; "": there is none
}

// A holder is a lease as others see it.
type holder struct {
	Lease   uint64    `json:"lease"` // its number; the id is the holder's alone
	Weight  int64     `json:"weight"`
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"` // its last heartbeat
	source
	Pooled  bool `json:"pooled"`  // a block from which a process serves many
	Revoked bool `json:"revoked"` // the holder has not confirmed yet
}

// A source says where an acquire comes from.
type source struct {
	Holder   string `json:"holder"`   // the text of the client, as it was sent
	By       string `json:"by"`       // the name of the client's token or certificate; "": none
	Site     string `json:"site"`     // file and line, of Go clients
	Labels   string `json:"labels"`   // of Go clients
	Instance string `json:"instance"` // the process that is notified
	Host     string `json:"host"`
	Process  int64  `json:"process"` // its id; 0: not known
}

func newSource(c protocol.Client, d protocol.Details) source {
	return source{Holder: d.Holder, By: d.By, Site: d.Site, Labels: d.Labels, Instance: c.Instance, Host: c.Host, Process: c.Process}
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
		Ramp: c.Ramp, MaxWaiters: maxWaiters(c.MaxWaiters).shown(), TTL: seconds(span(c.TTL)), Window: seconds(span(c.Window)), Version: c.Version,
	}
	if c.Kind == protocol.Rate {
		t.Kind = rateKind
	}
	return t
}

// newInfo returns a page of a snapshot.
func newInfo(name string, s protocol.Snapshot, p page) (info, error) {
	held, queued, next, ok := paging.Cut(s, p.after, p.size())
	if !ok {
		return info{}, invalid("after: %s: want the next of the page before", quote(p.after))
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
			Pooled: l.Pooled, Revoked: l.Revoked,
		}
	}
	for i, q := range queued {
		t.Waiters[i] = waiter{Weight: q.Weight, Since: instant(q.Since), source: newSource(sessions[q.Session].Client, q.Details)}
	}
	return t, nil
}
