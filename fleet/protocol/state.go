package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A State is one semaphore. The zero State is not one: use [New].
//
// Its invariants, which [State.Check] checks and docs/protocol.md argues:
//
//	weights of live leases ≤ effective capacity, but for what was out when it was lowered
//	tickets are granted strictly in order
//	a batch is applied at most once for each session and seq
//	nobody waits who could be granted, unless the last reply said More
type State struct {
	config Config
	ramp   ramp

	last  Micros // the engine's clock at the last batch
	clock Micros // the semaphore's own, see advance

	sessions    map[Session]*session
	byRenewal   list.List[*session] // the oldest first
	lastSession Session
	renewals    uint64

	line    list.List[*ticket] // in order
	leases  map[Seq]*lease
	live    list.List[*lease] // by Seq
	lastSeq Seq
	inUse   int64 // weights of leases; of a Rate, what was granted in the window
	spent   []spending
	wanted  int64 // least weights of the tickets in line

	pools    list.List[*session] // who have blocks, and were not told that others wait
	recalled list.List[*session] // and who were

	budget  int       // dead sessions that may still be ended in this call
	more    bool      // there were more of them
	woken   []Session // who has news, for the engine to tell
	hinted  *ticket   // the first in line that was told to watch the time
	journal *journal  // what has changed, if that is wanted
}

// New makes the state of a new semaphore. Seqs and sessions begin after
// tombstone, the last of a semaphore of this name that was deleted, and not
// before the time: so that no fence, and no batch, of an earlier life passes for
// one of this.
func New(now Micros, config Config, tombstone Seq) (*State, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	config.Version = 1
	config.Protocol = cmp.Or(config.Protocol, Version)
	return &State{
		config: config, last: now,
		ramp:     ramp{from: config.Capacity, at: now},
		sessions: map[Session]*session{}, leases: map[Seq]*lease{},
		lastSeq:     max(tombstone, Seq(max(now, 0))),
		lastSession: Session(max(tombstone, Seq(max(now, 0)))),
	}, nil
}

// Open begins a session, and does nothing else: a delayed duplicate of it leaves
// a session nobody uses, which dies. It fails with [ErrVersion] if the opener,
// who speaks that version of the protocol, would not understand.
func (s *State) Open(now Micros, by Opener, version uint32) (Session, Config, error) {
	s.begin(now)
	version = cmp.Or(version, Version)
	if version+1 < s.config.Protocol || version > s.config.Protocol+1 {
		return 0, s.config, fmt.Errorf("%w: the semaphore was made by version %d, this is version %d", ErrVersion, s.config.Protocol, version)
	}
	s.noteHighest(by.Highest)
	s.lastSession++
	opened := &session{id: s.lastSession, client: by.Client, owner: by.Owner, tickets: map[Ticket]*ticket{}, leases: map[Seq]*lease{}}
	opened.node.Of, opened.pool.Of = opened, opened
	s.sessions[opened.id] = opened
	s.renew(opened)
	s.journal.matter() // or its number might be given again
	return opened.id, s.config, nil
}

// ErrVersion is for those who are too old or too new for what is stored.
var ErrVersion = errors.New("other version of the protocol; upgrade step by step")

// Apply does what a batch asks.
//
// A Recall asks a session to give back what it does not use of its blocks, and
// the rest as soon as it is released. One that serves many others, as a region
// does, may go on with its even share: if nobody has more than that, whoever has
// less finds something free. It is 0 while the first in line wants more than
// such a share.
func (s *State) Apply(now Micros, b Batch) Reply {
	gap := now - s.last
	s.begin(now)
	from := s.sessions[b.Session]
	status := Unknown
	if from != nil && from.owner == b.Owner && !s.dead(from) { // an expired one may not have been removed yet
		s.noteHighest(b.Highest)
		status = s.hear(from, b)
	}
	s.settle()
	if status == Unknown || b.End && status == Applied {
		return Reply{Status: status, More: s.more, Config: s.config, InUse: s.inUse, Undecided: s.undecided(), Wanted: s.wanted, First: s.firstWants()}
	}
	if status == Applied {
		// It hears of its news now. A batch that was doubled on its way may have
		// nobody who listens to the answer.
		if from.woken {
			from.woken = false
			s.woken = slices.DeleteFunc(s.woken, func(id Session) bool { return id == from.id })
		}
	}
	return s.answer(from, status, gap > s.config.TTL/6)
}

// begin brings the semaphore up to date with the time.
func (s *State) begin(now Micros) {
	s.budget, s.more = reapAtOnce, false
	s.advance(now)
	s.reap()
	s.settle()
}

// hear applies a batch, unless it was heard before.
func (s *State) hear(from *session, b Batch) Status {
	switch {
	case b.Seq < from.seq:
		return Stale
	case b.Seq == from.seq:
		return Repeated
	}
	from.seq = b.Seq
	s.renew(from) // which notes the session as changed
	s.acknowledge(from, b.Ack)
	if b.End {
		s.end(from)
		return Applied
	}
	for _, op := range b.Ops {
		switch op.Verb {
		case Acquire:
			s.acquire(from, op)
		case Cancel:
			s.cancel(from, op.Ticket)
		case Release:
			s.release(from, op.Lease, op.Weight)
		case Split:
			s.split(from, op)
		case Settle:
			s.settleCost(from, op)
		default:
			s.tell(from, Result{Kind: Invalid, Ticket: op.Ticket})
		}
	}
	return Applied
}

// settle brings the semaphore to rest: who is first in line is served, and
// those are told who can make room or have to watch the time.
func (s *State) settle() {
	s.grant()
	s.recall()
	first := s.first()
	if first == nil {
		return
	}
	if _, ok := s.due(); ok && s.hinted != first {
		s.hinted = first
		s.wake(first.session)
	}
}

// answer is the reply to a session that lives.
func (s *State) answer(to *session, status Status, gapped bool) Reply {
	results := s.withFences(to.results)
	recall := to.pooled > 0 && s.recalls(to)
	if to.recalled && !recall {
		s.noteRecalled(to, false) // it hears that it may go on, so it has to be told again
	}
	reply := Reply{
		Status: status, Results: results, More: s.more, Config: s.config, Next: s.next(to, gapped),
		Recall: recall, InUse: s.inUse, Undecided: s.undecided(), Wanted: s.wanted, First: s.firstWants(),
	}
	if recall && !s.config.Draining && s.firstWants() <= s.evenShare() {
		reply.Share = s.evenShare()
	}
	return reply
}

// withFences is results with what holders have to show. Those that were granted are
// in the order of their Seqs.
func (s *State) withFences(results []Result) []Result {
	results = slices.Clone(results)
	var granted []Seq
	for _, f := range results {
		if f.Kind == Granted {
			granted = append(granted, f.Lease)
		}
	}
	fences := s.fences(granted)
	for i := range results {
		if results[i].Kind == Granted {
			results[i].Fence, fences = fences[0], fences[1:]
		}
	}
	return results
}

// next is when a session has to speak again, beyond its heartbeats: the first
// in line looks for holders that died, so does whoever has closed a gap that
// the semaphore's clock did not follow; and grants that come by time have
// nobody to tell of them.
func (s *State) next(to *session, gapped bool) Micros {
	if len(to.tickets) == 0 {
		return 0
	}
	first := s.first().session == to
	if !first && !gapped {
		return 0
	}
	next := s.config.TTL / 6
	if due, ok := s.due(); ok && first {
		next = max(1, min(next, due))
	}
	return next
}

// noteHighest makes new Seqs higher than one that a client has seen.
func (s *State) noteHighest(seen Seq) {
	if seen > s.lastSeq && seen <= Seq(max(s.last, 0))+MaxLead {
		s.lastSeq = seen
	}
}

// Woken is the sessions that were given something since it was last asked, but
// for those that were answered since. An engine hints to their instances; a hint that is lost costs a wait until the
// next heartbeat.
func (s *State) Woken() []Session {
	woken := s.woken
	for _, id := range woken {
		if r := s.sessions[id]; r != nil {
			r.woken = false
		}
	}
	s.woken = nil
	return woken
}

// Instance is whose session it is.
func (s *State) Instance(id Session) string {
	if found := s.sessions[id]; found != nil {
		return found.client.Instance
	}
	return ""
}

// Tombstone is what a semaphore of the same name has to begin after.
func (s *State) Tombstone() Seq { return max(s.lastSeq, Seq(s.lastSession)) }

// Check fails if there can be no such semaphore.
func (c Config) Check() error {
	switch {
	case c.Capacity < 0 || c.Capacity > MaxCapacity:
		return fmt.Errorf("capacity %d: want 0 to %d", c.Capacity, int64(MaxCapacity))
	case c.Whole != 0 && c.Whole < c.Capacity:
		return fmt.Errorf("capacity %d of %d: want a share", c.Capacity, c.Whole)
	case c.Ramp < 0 || c.Ramp > MaxCapacity:
		return fmt.Errorf("ramp %d: want permits a second, or 0 for at once", c.Ramp)
	case c.MaxWaiters < NoWaiters:
		return fmt.Errorf("at most %d waiters: want 0 for no bound, %d for none, or more", c.MaxWaiters, NoWaiters)
	case c.TTL < minTTL || c.TTL > maxTime:
		return fmt.Errorf("TTL of %d µs: want %d to %d", c.TTL, minTTL, maxTime)
	case c.Kind > Rate:
		return fmt.Errorf("kind %d is unknown", c.Kind)
	case c.Kind == Rate && (c.Window <= 0 || c.Window > maxTime):
		return fmt.Errorf("window of %d µs: want 1 to %d", c.Window, maxTime)
	case c.Numbered && (c.Kind == Rate || c.Whole != 0):
		return errors.New("numbered permits: want a semaphore of one store whose permits are released")
	case c.Numbered && c.Capacity > MaxNumbered:
		return fmt.Errorf("capacity %d: want at most %d numbered permits", c.Capacity, MaxNumbered)
	}
	return nil
}

// MaxCapacity is what every engine can count exactly, Lua's doubles included.
const MaxCapacity = 1 << 40

// minTTL leaves room for a heartbeat and its loss on any network; maxTime is a
// year, far from any overflow.
const (
	minTTL  Micros = 100_000
	maxTime Micros = 365 * 24 * 3600 * second
)
