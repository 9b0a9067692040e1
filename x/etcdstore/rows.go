package etcdstore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// rows hold a semaphore as of an entry of its log: a [protocol.Image] to which entries can
// be applied.
type rows struct {
	plain    protocol.Image // without the lists
	sessions map[protocol.Session]protocol.SessionImage
	leases   map[protocol.Seq]protocol.LeaseImage
	queue    []protocol.TicketImage
	spent    []protocol.SpentImage
}

func newRows(im protocol.Image) *rows {
	r := &rows{
		plain: plain(im), queue: im.Queue, spent: im.Spent,
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

// plain returns an image without its lists.
func plain(im protocol.Image) protocol.Image {
	im.Sessions, im.Leases, im.Queue, im.Spent = nil, nil, nil, nil
	return im
}

func (r *rows) count() int { return len(r.sessions) + len(r.leases) + len(r.queue) + len(r.spent) }

// spentUntil returns the time from which nothing of the spending is in use; 0 if there is
// no spending.
func spentUntil(spent []protocol.SpentImage) protocol.Micros {
	if len(spent) == 0 {
		return 0
	}
	return spent[len(spent)-1].Until
}

// spentChanges returns the difference between the spending of the rows and that after the
// changes. from is the lowest Seq that remains. changed are the entries that are new or
// were changed, because a grant was settled or a clock stepped back.
func (r *rows) spentChanges(c *protocol.Changes) (from protocol.Seq, changed []spentRow) {
	if len(c.Spent) == 0 {
		return c.Image.LastSeq + 1, nil
	}
	from = c.Spent[0].Seq
	left := r.spent[indexOf(r.spent, from):]
	for i, s := range c.Spent {
		if i >= len(left) || left[i] != s {
			changed = append(changed, spentRow(s))
		}
	}
	return from, changed
}

// spentAfter applies a difference that spentChanges returned, and returns the spending.
func (r *rows) spentAfter(from protocol.Seq, changed []spentRow) []protocol.SpentImage {
	spent := slices.Clone(r.spent[indexOf(r.spent, from):])
	for _, s := range changed {
		if i := indexOf(spent, s.Seq); i < len(spent) && spent[i].Seq == s.Seq {
			spent[i] = protocol.SpentImage(s)
		} else {
			spent = slices.Insert(spent, i, protocol.SpentImage(s))
		}
	}
	return spent
}

// indexOf returns where the entry of a grant is, or would be: Seqs ascend.
func indexOf(spent []protocol.SpentImage, seq protocol.Seq) int {
	at, _ := slices.BinarySearchFunc(spent, seq, func(s protocol.SpentImage, seq protocol.Seq) int { return cmp.Compare(s.Seq, seq) })
	return at
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
		r.queue = slices.DeleteFunc(r.queue, func(t protocol.TicketImage) bool {
			return left[protocol.TicketName{Session: t.Session, Ticket: t.Ticket}]
		})
	}
	r.queue = append(r.queue, c.Queue...)
	if c.Respent {
		r.spent = c.Spent
	}
}

func (r *rows) image() protocol.Image {
	im := r.plain
	im.Sessions = slices.SortedFunc(maps.Values(r.sessions), func(a, b protocol.SessionImage) int { return cmp.Compare(a.Renewal, b.Renewal) })
	im.Leases = slices.SortedFunc(maps.Values(r.leases), func(a, b protocol.LeaseImage) int { return cmp.Compare(a.Seq, b.Seq) })
	im.Queue, im.Spent = r.queue, r.spent
	return im
}
