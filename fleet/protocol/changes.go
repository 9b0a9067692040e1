package protocol

import (
	"cmp"
	"maps"
	"slices"
)

// Changes are what is different since they were last asked for, so that an
// engine can keep its image of a state up to date without writing all of it
// down each time. What is in no list is as it was; the plain fields of an
// [Image] always count.
type Changes struct {
	Image    Image          // without the lists
	Sessions []SessionImage // new, or changed
	Ended    []Session
	Leases   []LeaseImage // new, or changed
	Dropped  []Seq
	Queue    []TicketImage // new, at the end of the line, in order
	Left     []TicketName
	Spent    []SpentImage // all, if any changed
	Respent  bool
}

// A TicketName names a ticket among those of all sessions.
type TicketName struct {
	Session Session
	Ticket  Ticket
}

// A journal notes what is touched. A nil one notes nothing.
type journal struct {
	sessions map[Session]bool
	leases   map[Seq]bool
	arrived  []*ticket
	left     []TicketName
	spent    bool
	vital    bool
}

func newJournal() *journal {
	return &journal{sessions: map[Session]bool{}, leases: map[Seq]bool{}}
}

func (j *journal) session(id Session) {
	if j != nil {
		j.sessions[id] = true
	}
}

// matter notes that something is vital.
func (j *journal) matter() {
	if j != nil {
		j.vital = true
	}
}

func (j *journal) lease(seq Seq) {
	if j != nil {
		j.leases[seq] = true
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

// leave forgets a ticket that has come since as well.
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

// Track has the state note what changes from now on.
func (s *State) Track() { s.journal = newJournal() }

// Vital reports whether anything has changed, since Track or the last Changes,
// that must be written down before it is answered. Signs of life are not vital:
// an engine may keep them to itself until something is, if it calls
// [State.Extend] on what it restores.
func (s *State) Vital() bool { return s.journal.vital }

// Extend gives every session a whole TTL from now on. It is for a state that was
// restored and may lack the last signs of life: those who gave them trust in
// them. Who has been silent since it was last extended is not again, or an engine
// that is restored more often than a TTL passes would keep the dead for ever.
// Those are the oldest, so the order of renewal is still that of deadlines.
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

// Changes is what has changed since Track or the last Changes.
func (s *State) Changes() Changes {
	j := s.journal
	s.journal = newJournal()
	c := Changes{Image: s.plainImage(), Left: j.left, Respent: j.spent}
	for _, id := range slices.Sorted(maps.Keys(j.sessions)) {
		if r := s.sessions[id]; r != nil {
			c.Sessions = append(c.Sessions, r.image())
		} else {
			c.Ended = append(c.Ended, id)
		}
	}
	slices.SortFunc(c.Sessions, func(a, b SessionImage) int { return cmp.Compare(a.Renewal, b.Renewal) })
	for _, seq := range slices.Sorted(maps.Keys(j.leases)) {
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
