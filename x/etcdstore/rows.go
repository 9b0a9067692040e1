package etcdstore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// rows are a semaphore as it was written down with some entry of its log: what
// [protocol.Image] has, so that entries can be applied to it.
type rows struct {
	plain    protocol.Image // without the lists
	sessions map[protocol.Session]protocol.SessionImage
	leases   map[protocol.Seq]protocol.LeaseImage
	line     []protocol.TicketImage
	spent    []protocol.SpentImage
}

func newRows(im protocol.Image) *rows {
	r := &rows{
		plain: plain(im), line: im.Queue, spent: im.Spent,
		sessions: make(map[protocol.Session]protocol.SessionImage, len(im.Sessions)), leases: make(map[protocol.Seq]protocol.LeaseImage, len(im.Leases)),
	}
	for _, s := range im.Sessions {
		r.sessions[s.ID] = s
	}
	for _, l := range im.Leases {
		r.leases[l.Seq] = l
	}
	return r
}

// plain is an image without its lists.
func plain(im protocol.Image) protocol.Image {
	im.Sessions, im.Leases, im.Queue, im.Spent = nil, nil, nil, nil
	return im
}

func (r *rows) count() int { return len(r.sessions) + len(r.leases) + len(r.line) + len(r.spent) }

// totals are for people.
type totals struct {
	inUse             int64
	waiting, sessions int
}

func (r *rows) totals() totals {
	t := totals{waiting: len(r.line), sessions: len(r.sessions)}
	for _, l := range r.leases {
		t.inUse += l.Weight
	}
	for _, s := range r.spent {
		t.inUse += s.Weight
	}
	return t
}

// after is the totals with some changes, which are not applied yet.
func (r *rows) after(before totals, c *protocol.Changes) totals {
	t := before
	t.waiting += len(c.Queue) - len(c.Left)
	for _, s := range c.Sessions {
		if _, there := r.sessions[s.ID]; !there {
			t.sessions++
		}
	}
	for _, id := range c.Ended {
		if _, there := r.sessions[id]; there {
			t.sessions--
		}
	}
	for _, l := range c.Leases {
		t.inUse += l.Weight - r.leases[l.Seq].Weight
	}
	for _, seq := range c.Dropped {
		t.inUse -= r.leases[seq].Weight
	}
	if c.Respent {
		for _, s := range r.spent {
			t.inUse -= s.Weight
		}
		for _, s := range c.Spent {
			t.inUse += s.Weight
		}
	}
	return t
}

func (r *rows) apply(c *protocol.Changes) {
	r.plain = plain(c.Image)
	for _, s := range c.Sessions {
		r.sessions[s.ID] = s
	}
	for _, id := range c.Ended {
		delete(r.sessions, id)
	}
	for _, l := range c.Leases {
		r.leases[l.Seq] = l
	}
	for _, seq := range c.Dropped {
		delete(r.leases, seq)
	}
	if len(c.Left) > 0 {
		left := make(map[protocol.TicketName]bool, len(c.Left))
		for _, name := range c.Left {
			left[name] = true
		}
		r.line = slices.DeleteFunc(r.line, func(t protocol.TicketImage) bool {
			return left[protocol.TicketName{Session: t.Session, Ticket: t.Ticket}]
		})
	}
	r.line = append(r.line, c.Queue...)
	if c.Respent {
		r.spent = c.Spent
	}
}

func (r *rows) image() protocol.Image {
	im := r.plain
	im.Sessions = slices.SortedFunc(maps.Values(r.sessions), func(a, b protocol.SessionImage) int { return cmp.Compare(a.Renewal, b.Renewal) })
	im.Leases = slices.SortedFunc(maps.Values(r.leases), func(a, b protocol.LeaseImage) int { return cmp.Compare(a.Seq, b.Seq) })
	im.Queue, im.Spent = r.line, r.spent
	return im
}
