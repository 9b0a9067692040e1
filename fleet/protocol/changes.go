package protocol

import (
	"cmp"
	"slices"
)

// Changes are the differences of a state since the last call of [State.Changes]. A store uses
// them to update its stored image without writing all of it each time. What is in no list is
// unchanged; the fields of Image other than its lists are always current.
type Changes struct {
	Image    Image          // without its lists
	Sessions []SessionImage // new or changed
	Ended    []Session
	Leases   []LeaseImage // new or changed
	Dropped  []Seq
	Queue    []TicketImage // new, at the end of the queue, in order
	Left     []TicketName
	Spent    []SpentImage // all of them, if any changed
	Respent  bool
}

// A TicketName identifies a ticket among those of all sessions.
type TicketName struct {
	Session Session
	Ticket  Ticket
}

// A journal records what changes. A nil journal records nothing.
type journal struct {
	sessions map[Session]bool
	leases   []Seq // may contain one more than once; vital, so a store soon calls Changes
	arrived  []*ticket
	left     []TicketName
	spent    bool
	vital    bool
}

func newJournal() *journal {
	return &journal{sessions: map[Session]bool{}}
}

func (j *journal) session(id Session) {
	if j != nil {
		j.sessions[id] = true
	}
}

// markVital records a vital change, see [State.Vital].
func (j *journal) markVital() {
	if j != nil {
		j.vital = true
	}
}

func (j *journal) lease(seq Seq) {
	if j != nil {
		j.leases = append(j.leases, seq)
		j.vital = true
	}
}

func (j *journal) arrive(t *ticket) {
	if j != nil {
		t.fresh = true
		j.arrived = append(j.arrived, t)
		j.vital = true
	}
}

// leave records that a ticket has left the queue. It drops the record of a fresh ticket.
func (j *journal) leave(t *ticket) {
	if j == nil {
		return
	}
	j.vital = true
	if t.fresh {
		j.arrived = slices.DeleteFunc(j.arrived, func(other *ticket) bool { return other == t })
		return
	}
	j.left = append(j.left, TicketName{t.session.id, t.id})
}

func (j *journal) spend() {
	if j != nil {
		j.spent = true
	}
}

// Track makes the state record changes from now on.
func (s *State) Track() { s.journal = newJournal() }

// Vital reports whether anything has changed, since Track or the last Changes, that must be
// stored before the reply is sent. Renewals are not vital: a store may delay them until a
// vital change, if it calls [State.Extend] on the state that it restores.
func (s *State) Vital() bool { return s.journal.vital }

// Extend gives every session a whole TTL from now on. It is for a restored state, which may
// lack the last renewals although clients rely on them. A session that was not renewed
// since the last Extend is not extended again: otherwise a store that restarts more than once
// per TTL would keep expired sessions for ever. Such sessions are the oldest, so the order of
// renewals remains the order of deadlines.
func (s *State) Extend() {
	for r := range s.byRenewal.All {
		if r.extended {
			continue
		}
		r.deadline = s.clock + s.config.TTL
		r.extended = true
		s.journal.session(r.id)
	}
}

// Changes returns what has changed since Track or the last Changes.
func (s *State) Changes() Changes {
	j := s.journal
	s.journal = newJournal()
	c := Changes{Image: s.plainImage(), Left: j.left, Respent: j.spent}
	changed := make([]*session, 0, len(j.sessions))
	for id := range j.sessions {
		if r := s.sessions[id]; r != nil {
			changed = append(changed, r)
		} else {
			c.Ended = append(c.Ended, id)
		}
	}
	slices.Sort(c.Ended)
	slices.SortFunc(changed, func(a, b *session) int { // before the images are made, which are larger
		return cmp.Or(cmp.Compare(a.renewal, b.renewal), cmp.Compare(a.id, b.id))
	})
	c.Sessions = slices.Grow(c.Sessions, len(changed))
	for _, r := range changed {
		c.Sessions = append(c.Sessions, r.image())
	}
	slices.Sort(j.leases)
	for _, seq := range slices.Compact(j.leases) {
		if l := s.leases[seq]; l != nil {
			c.Leases = append(c.Leases, l.image())
		} else {
			c.Dropped = append(c.Dropped, seq)
		}
	}
	for _, t := range j.arrived {
		t.fresh = false
		c.Queue = append(c.Queue, t.image())
	}
	if j.spent {
		c.Spent = s.spentImage()
	}
	return c
}
