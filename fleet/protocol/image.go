package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// An Image is a [State] as plain values, for stores that keep it outside memory. Its lists are
// in a defined order.
type Image struct {
	Config      Config
	RampFrom    int64 // the capacity at RampAt, from which it rises
	RampAt      Micros
	Last, Clock Micros
	LastSession Session
	LastSeq     Seq
	Renewals    uint64
	Sessions    []SessionImage // by renewal
	Leases      []LeaseImage   // by Seq
	Queue       []TicketImage  // in order of arrival
	Spent       []SpentImage   // in order of grants
}

// A SessionImage is a session in an [Image].
type SessionImage struct {
	ID         Session
	Client     Client
	Owner      Owner
	Seq        uint64
	Deadline   Micros
	Renewed    Micros
	Renewal    uint64
	LastResult uint64
	Recalled   bool
	Extended   bool     `json:",omitempty"` // by [State.Extend], and not renewed since
	Results    []Result // not acknowledged
}

// A LeaseImage is a lease in an [Image].
type LeaseImage struct {
	Seq     Seq
	Session Session
	Weight  int64
	Pooled  bool
	Revoked bool
	Since   Micros
	Slots   Slots    `json:",omitempty"`
	Details *Details // nil if empty
}

// A TicketImage is a ticket in an [Image].
type TicketImage struct {
	Session Session
	Ticket  Ticket
	Weight  int64
	Least   int64
	Until   Micros
	Pooled  bool
	Since   Micros
	Details *Details // nil if empty
}

// A SpentImage is the cost of a grant of a Rate in an [Image].
type SpentImage struct {
	Until   Micros
	Weight  int64
	Seq     Seq
	Session Session
}

// Image returns the state as plain values.
func (s *State) Image() Image {
	im := s.plainImage()
	for r := range s.byRenewal.All {
		im.Sessions = append(im.Sessions, r.image())
	}
	for l := range s.live.All {
		im.Leases = append(im.Leases, l.image())
	}
	for t := range s.queue.All {
		im.Queue = append(im.Queue, t.image())
	}
	im.Spent = s.spentImage()
	return im
}

// plainImage returns the image without its lists.
func (s *State) plainImage() Image {
	return Image{
		Config: s.config, RampFrom: s.ramp.from, RampAt: s.ramp.at, Last: s.last, Clock: s.clock,
		LastSession: s.lastSession, LastSeq: s.lastSeq, Renewals: s.renewals,
	}
}

func (r *session) image() SessionImage {
	return SessionImage{
		ID: r.id, Client: r.client, Owner: r.owner, Seq: r.seq, Deadline: r.deadline, Renewed: r.renewed, Renewal: r.renewal,
		LastResult: r.lastResult, Recalled: r.recalled, Extended: r.extended, Results: slices.Clone(r.results),
	}
}

func (l *lease) image() LeaseImage {
	return LeaseImage{l.seq, l.session.id, l.weight, l.pooled, l.revoked, l.since, l.slots, l.details}
}

func (t *ticket) image() TicketImage {
	return TicketImage{t.session.id, t.id, t.weight, t.least, t.until, t.pooled, t.since, t.details}
}

func (s *State) spentImage() (all []SpentImage) {
	for _, spent := range s.spent {
		all = append(all, SpentImage{spent.until, spent.weight, spent.seq, spent.session})
	}
	return all
}

// Restore returns the state of an image. It fails if no state can have such an image.
func Restore(im Image) (*State, error) {
	if err := im.Config.Check(); err != nil {
		return nil, err
	}
	s := &State{
		config: im.Config, ramp: ramp{im.RampFrom, im.RampAt}, last: im.Last, clock: im.Clock,
		lastSession: im.LastSession, lastSeq: im.LastSeq, renewals: im.Renewals,
		sessions: map[Session]*session{}, leases: map[Seq]*lease{},
	}
	for _, r := range im.Sessions {
		restored := &session{
			id: r.ID, client: r.Client, owner: r.Owner, seq: r.Seq, deadline: r.Deadline, renewed: r.Renewed, renewal: r.Renewal, lastResult: r.LastResult, recalled: r.Recalled, extended: r.Extended,
			results: slices.Clone(r.Results), tickets: map[Ticket]*ticket{}, leases: map[Seq]*lease{},
		}
		restored.node.Of, restored.pool.Of = restored, restored
		s.sessions[r.ID] = restored
		s.byRenewal.PushBack(&restored.node)
	}
	if err := s.restoreLeases(im.Leases); err != nil {
		return nil, err
	}
	if err := s.restoreQueue(im.Queue); err != nil {
		return nil, err
	}
	for _, spent := range im.Spent {
		s.spent = append(s.spent, spending{spent.Until, spent.Weight, spent.Seq, spent.Session})
		s.inUse += spent.Weight
	}
	s.more = true // it may have been set; this costs a caller one more call
	return s, s.Check()
}

func (s *State) restoreLeases(leases []LeaseImage) error {
	if !slices.IsSortedFunc(leases, func(a, b LeaseImage) int { return cmp.Compare(a.Seq, b.Seq) }) {
		return fmt.Errorf("leases are out of order")
	}
	for _, l := range leases {
		holder := s.sessions[l.Session]
		if holder == nil {
			return fmt.Errorf("lease %d: unknown session %d", l.Seq, l.Session)
		}
		if numbers, err := l.Slots.Numbers(); err != nil || s.config.Numbered && int64(len(numbers)) != l.Weight {
			return fmt.Errorf("lease %d of weight %d: invalid slots %q", l.Seq, l.Weight, l.Slots)
		}
		s.addLease(&lease{seq: l.Seq, session: holder, weight: l.Weight, pooled: l.Pooled, revoked: l.Revoked, since: l.Since, slots: l.Slots, details: l.Details})
		s.inUse += l.Weight
	}
	return nil
}

func (s *State) restoreQueue(queue []TicketImage) error {
	for _, t := range queue {
		waiter := s.sessions[t.Session]
		if waiter == nil {
			return fmt.Errorf("ticket %d: unknown session %d", t.Ticket, t.Session)
		}
		if t.Least <= 0 || t.Least > t.Weight {
			return fmt.Errorf("ticket %d of weight %d: invalid least weight %d", t.Ticket, t.Weight, t.Least)
		}
		s.enqueue(&ticket{
			id: t.Ticket, session: waiter, weight: t.Weight, least: t.Least, until: t.Until, pooled: t.Pooled, since: t.Since, details: t.Details,
		})
	}
	return nil
}
