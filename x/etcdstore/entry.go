package etcdstore

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// format is that of what is stored. Another one is rejected: a higher one was
// written by a newer program, a lower one before version 1.
const format = 2

// A head says how long the log of a semaphore is. Every write puts it, and
// compares it: that is what keeps writers apart. The rest of it is for people.
type head struct {
	Format int    `json:"format"`
	Number uint64 `json:"entry"`    // the last of the log
	Full   uint64 `json:"complete"` // the last one that has all of the state

	Kind     string    `json:"kind"`
	Capacity int64     `json:"capacity"`
	InUse    int64     `json:"in_use"`
	Waiting  int       `json:"waiting"`
	Sessions int       `json:"sessions"`
	Draining bool      `json:"draining,omitempty"`
	Version  uint64    `json:"version"`
	Changed  time.Time `json:"changed"`
}

func newHead(number, full uint64, c protocol.Config, at protocol.Micros, t totals) head {
	h := head{
		Format: format, Number: number, Full: full,
		Kind: "concurrency", Capacity: c.Capacity, InUse: t.inUse, Waiting: t.waiting, Sessions: t.sessions,
		Draining: c.Draining, Version: c.Version, Changed: time.UnixMicro(int64(at)).UTC(),
	}
	if c.Kind == protocol.Rate {
		h.Kind = "rate"
	}
	return h
}

// An entry is one write to a semaphore. It has what it changed, or all there is
// after it; what is large is in parts of their own.
type entry struct {
	By       string          `json:"by"`   // the attempt that wrote it
	Pace     protocol.Micros `json:"pace"` // see pace
	Parts    int             `json:"parts,omitempty"`
	Answers  []answer        `json:"answers,omitempty"`
	Watching ticketNameRow   `json:"watching,omitzero"` // who was told last to watch the time
	Plain    *plainRow       `json:"semaphore,omitempty"`
	State    *stateRows      `json:"state,omitempty"`
	Changes  *changeRows     `json:"changes,omitempty"`
}

// An answer is for a batch of another process, which that had asked others to
// take along.
type answer struct {
	To    string         `json:"to"`
	Reply protocol.Reply `json:"reply"`
}

// The rows of images, with names for people. Their fields are the model's, one
// for one, or they could not be converted.
type (
	configRow struct {
		Kind       protocol.Kind   `json:"kind"`
		Capacity   int64           `json:"capacity"`
		Whole      int64           `json:"whole,omitempty"`
		Ramp       int64           `json:"ramp,omitempty"`
		MaxWaiters int64           `json:"max_waiters,omitempty"`
		TTL        protocol.Micros `json:"ttl"`
		Window     protocol.Micros `json:"window,omitempty"`
		Draining   bool            `json:"draining,omitempty"`
		Version    uint64          `json:"version"`
		Protocol   uint32          `json:"protocol"`
	}
	plainRow struct {
		Config      configRow        `json:"config"`
		RampFrom    int64            `json:"ramp_from,omitempty"`
		RampAt      protocol.Micros  `json:"ramp_at,omitempty"`
		Last        protocol.Micros  `json:"last"`
		Clock       protocol.Micros  `json:"clock"`
		LastSession protocol.Session `json:"last_session"`
		LastSeq     protocol.Seq     `json:"last_seq"`
		Renewals    uint64           `json:"renewals"`
	}
	sessionRow struct {
		ID         protocol.Session `json:"id"`
		Instance   string           `json:"instance"`
		Key        keyRow           `json:"key"`
		Principal  string           `json:"principal,omitempty"`
		Seq        uint64           `json:"seq"`
		Deadline   protocol.Micros  `json:"deadline"`
		Seen       protocol.Micros  `json:"seen"`
		Renewal    uint64           `json:"renewal"`
		LastResult uint64           `json:"last_result,omitempty"`
		Recalled   bool             `json:"recalled,omitempty"`
		Results    []fateRow        `json:"results,omitempty"`
	}
	fateRow struct { // without the fence, which is that of the moment in which it is told
		N      uint64              `json:"n"`
		Kind   protocol.ResultKind `json:"kind"`
		Ticket protocol.Ticket     `json:"ticket,omitempty"`
		Lease  protocol.Seq        `json:"lease,omitempty"`
		Weight int64               `json:"weight,omitempty"`
		Note   string              `json:"note,omitempty"`
	}
	leaseRow struct {
		Seq     protocol.Seq     `json:"seq"`
		Session protocol.Session `json:"session"`
		Weight  int64            `json:"weight"`
		Pooled  bool             `json:"pooled,omitempty"`
		Revoked bool             `json:"revoked,omitempty"`
		Since   protocol.Micros  `json:"since"`
		Meta    string           `json:"meta,omitempty"`
	}
	ticketRow struct {
		Session protocol.Session `json:"session"`
		Ticket  protocol.Ticket  `json:"ticket"`
		Weight  int64            `json:"weight"`
		Least   int64            `json:"least"`
		Until   protocol.Micros  `json:"until,omitempty"`
		Pooled  bool             `json:"pooled,omitempty"`
		Meta    string           `json:"meta,omitempty"`
	}
	ticketNameRow struct {
		Session protocol.Session `json:"session"`
		Ticket  protocol.Ticket  `json:"ticket"`
	}
	spentRow struct {
		Until  protocol.Micros `json:"until"`
		Weight int64           `json:"weight"`
	}
	stateRows struct {
		Sessions []sessionRow `json:"sessions,omitempty"`
		Leases   []leaseRow   `json:"leases,omitempty"`
		Queue    []ticketRow  `json:"queue,omitempty"`
		Spent    []spentRow   `json:"spent,omitempty"`
	}
	changeRows struct {
		Sessions []sessionRow       `json:"sessions,omitempty"`
		Ended    []protocol.Session `json:"ended,omitempty"`
		Leases   []leaseRow         `json:"leases,omitempty"`
		Dropped  []protocol.Seq     `json:"dropped,omitempty"`
		Queue    []ticketRow        `json:"queue,omitempty"`
		Left     []ticketNameRow    `json:"left,omitempty"`
		Spent    []spentRow         `json:"spent,omitempty"`
		Respent  bool               `json:"respent,omitempty"`
	}
)

// A keyRow is the key of a session, in hexadecimal digits.
type keyRow protocol.Key

func (k keyRow) MarshalText() ([]byte, error) { return []byte(protocol.Key(k).Hex()), nil }

func (k *keyRow) UnmarshalText(text []byte) error {
	key, err := protocol.ParseKey(string(text))
	*k = keyRow(key)
	return err
}

func newPlainRow(im protocol.Image) *plainRow {
	return &plainRow{configRow(im.Config), im.RampFrom, im.RampAt, im.Last, im.Clock, im.LastSession, im.LastSeq, im.Renewals}
}

func (p *plainRow) image() protocol.Image {
	return protocol.Image{
		Config: protocol.Config(p.Config), RampFrom: p.RampFrom, RampAt: p.RampAt, Last: p.Last, Clock: p.Clock,
		LastSession: p.LastSession, LastSeq: p.LastSeq, Renewals: p.Renewals,
	}
}

func newSessionRow(s protocol.SessionImage) sessionRow {
	return sessionRow{s.ID, s.Instance, keyRow(s.Owner.Key), s.Owner.Principal, s.Seq, s.Deadline, s.Seen, s.Renewal, s.LastResult, s.Recalled, each(s.Results, func(f protocol.Result) fateRow {
		return fateRow{f.N, f.Kind, f.Ticket, f.Lease, f.Weight, f.Note}
	})}
}

func (s sessionRow) image() protocol.SessionImage {
	return protocol.SessionImage{
		ID: s.ID, Instance: s.Instance, Owner: protocol.Owner{Key: protocol.Key(s.Key), Principal: s.Principal}, Seq: s.Seq, Deadline: s.Deadline, Seen: s.Seen, Renewal: s.Renewal, LastResult: s.LastResult, Recalled: s.Recalled,
		Results: each(s.Results, func(f fateRow) protocol.Result {
			return protocol.Result{N: f.N, Kind: f.Kind, Ticket: f.Ticket, Lease: f.Lease, Weight: f.Weight, Note: f.Note}
		}),
	}
}

func newStateRows(im protocol.Image) *stateRows {
	return &stateRows{
		each(im.Sessions, newSessionRow),
		each(im.Leases, func(l protocol.LeaseImage) leaseRow { return leaseRow(l) }),
		each(im.Queue, func(t protocol.TicketImage) ticketRow { return ticketRow(t) }),
		each(im.Spent, func(s protocol.SpentImage) spentRow { return spentRow(s) }),
	}
}

func (s *stateRows) image(plain protocol.Image) protocol.Image {
	plain.Sessions = each(s.Sessions, sessionRow.image)
	plain.Leases = each(s.Leases, func(l leaseRow) protocol.LeaseImage { return protocol.LeaseImage(l) })
	plain.Queue = each(s.Queue, func(t ticketRow) protocol.TicketImage { return protocol.TicketImage(t) })
	plain.Spent = each(s.Spent, func(s spentRow) protocol.SpentImage { return protocol.SpentImage(s) })
	return plain
}

func newChangeRows(c *protocol.Changes) *changeRows {
	return &changeRows{
		each(c.Sessions, newSessionRow), c.Ended,
		each(c.Leases, func(l protocol.LeaseImage) leaseRow { return leaseRow(l) }), c.Dropped,
		each(c.Queue, func(t protocol.TicketImage) ticketRow { return ticketRow(t) }),
		each(c.Left, func(t protocol.TicketName) ticketNameRow { return ticketNameRow(t) }),
		each(c.Spent, func(s protocol.SpentImage) spentRow { return spentRow(s) }), c.Respent,
	}
}

func (c *changeRows) changes(plain protocol.Image) *protocol.Changes {
	return &protocol.Changes{
		Image: plain, Sessions: each(c.Sessions, sessionRow.image), Ended: c.Ended,
		Leases: each(c.Leases, func(l leaseRow) protocol.LeaseImage { return protocol.LeaseImage(l) }), Dropped: c.Dropped,
		Queue: each(c.Queue, func(t ticketRow) protocol.TicketImage { return protocol.TicketImage(t) }),
		Left:  each(c.Left, func(t ticketNameRow) protocol.TicketName { return protocol.TicketName(t) }),
		Spent: each(c.Spent, func(s spentRow) protocol.SpentImage { return protocol.SpentImage(s) }), Respent: c.Respent,
	}
}

func each[A, B any](all []A, convert func(A) B) []B {
	if len(all) == 0 {
		return nil
	}
	converted := make([]B, len(all))
	for i, one := range all {
		converted[i] = convert(one)
	}
	return converted
}
