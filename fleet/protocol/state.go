package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sema-go/sema/internal/list"
)

// A State is the state of one semaphore. The zero State is invalid: use [New].
//
// Its invariants, which [State.Check] checks and docs/protocol.md argues:
//
//	weights of live leases ≤ effective capacity, except for leases granted before it was lowered
//	tickets are granted strictly in order
//	a batch is applied at most once for each session and seq
//	no ticket waits that could be granted, unless the last reply set More
type State struct {
	config Config
	ramp   ramp

	last  Micros // the store's clock at the last call
	clock Micros // the semaphore's own clock, see advance

	sessions    map[Session]*session
	byRenewal   list.List[*session] // oldest first
	lastSession Session
	renewals    uint64

	queue   list.List[*ticket] // in order of arrival
	leases  map[Seq]*lease
	live    list.List[*lease] // by Seq
	lastSeq Seq
	inUse   int64 // weights of leases; of a Rate, what was granted in the window
	spent   []spending
	wanted  int64 // sum of the least weights in the queue

	pools    list.List[*session] // sessions with blocks that were not notified of a recall
	recalled list.List[*session] // sessions with blocks that were

	budget        int       // expired sessions that this call may still end
	more          bool      // expired sessions are left over
	woken         []Session // sessions to notify
	notifiedFirst *ticket   // first ticket whose session was notified that time alone may grant it
	journal       *journal  // changes since Track or Changes; nil if they are not tracked
}

// New returns the state of a new semaphore. Seqs and sessions start after tombstone, the
// last number of a deleted semaphore of this name, and not below now. So no fence and no
// batch of the deleted semaphore is valid for the new one.
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

// Open opens a session and does nothing else: a delayed duplicate opens a session that is
// never used and expires. It fails with [ErrVersion] if version, the opener's version of
// the protocol, differs from the semaphore's by more than one.
func (s *State) Open(now Micros, by Opener, version uint32) (Session, Config, error) {
	s.begin(now)
	version = cmp.Or(version, Version)
	if version+1 < s.config.Protocol || version > s.config.Protocol+1 {
		return 0, s.config, fmt.Errorf("%w: semaphore created with version %d, client has version %d (hint: upgrade one version at a time)", ErrVersion, s.config.Protocol, version)
	}
	s.noteHighest(by.Highest)
	s.lastSession++
	opened := &session{id: s.lastSession, client: by.Client, owner: by.Owner, tickets: map[Ticket]*ticket{}, leases: map[Seq]*lease{}}
	opened.node.Of, opened.pool.Of = opened, opened
	s.sessions[opened.id] = opened
	s.renew(opened)
	s.journal.markVital() // otherwise its number could be assigned again
	return opened.id, s.config, nil
}

// ErrVersion means that the client is too old or too new for what is stored. Versions of the
// protocol may differ by one, so upgrades go one version at a time.
var ErrVersion = errors.New("unsupported protocol version")

// Apply applies a batch and returns the reply.
//
// A Recall asks a session to release the unused part of its blocks, and the rest as soon
// as its own users release it. A session that serves clients of its own, such as a region,
// may keep Share, its even share of the capacity. If no session keeps more, a session with
// less than its share finds free permits. Share is 0 while the first ticket in the queue
// needs more than an even share.
func (s *State) Apply(now Micros, b Batch) Reply {
	gap := now - s.last
	s.begin(now)
	from := s.sessions[b.Session]
	status := Unknown
	if from != nil && from.owner == b.Owner && !s.expired(from) { // an expired session may not have been removed yet
		s.noteHighest(b.Highest)
		status = s.applyBatch(from, b)
	}
	s.settle()
	if status == Unknown || b.End && status == Applied {
		return Reply{Status: status, More: s.more, Config: s.config, InUse: s.inUse, Undecided: s.undecided(), Wanted: s.wanted, First: s.firstLeast()}
	}
	if status == Applied {
		// The reply carries the results, so the session needs no notification. A repeated
		// batch keeps the mark: it may be a duplicate whose reply is never received.
		if from.woken {
			from.woken = false
			s.woken = slices.DeleteFunc(s.woken, func(id Session) bool { return id == from.id })
		}
	}
	return s.reply(from, status, gap > s.config.TTL/6)
}

// begin advances the clock, ends expired sessions and grants what became free.
func (s *State) begin(now Micros) {
	s.budget, s.more = reapAtOnce, false
	s.advance(now)
	s.reap()
	s.settle()
}

// applyBatch applies a batch, unless it or a later one was applied before.
func (s *State) applyBatch(from *session, b Batch) Status {
	switch {
	case b.Seq < from.seq:
		return Stale
	case b.Seq == from.seq:
		return Repeated
	}
	from.seq = b.Seq
	s.renew(from) // also records the session as changed
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
			s.addResult(from, Result{Kind: Invalid, Ticket: op.Ticket})
		}
	}
	return Applied
}

// settle grants from the head of the queue. Then it notifies the sessions that can release
// blocks, and the session of the first ticket if time alone may grant it.
func (s *State) settle() {
	s.grant()
	s.recall()
	first := s.first()
	if first == nil {
		return
	}
	if _, ok := s.due(); ok && s.notifiedFirst != first {
		s.notifiedFirst = first
		s.wake(first.session)
	}
}

// reply returns the reply to a live session.
func (s *State) reply(to *session, status Status, gapped bool) Reply {
	results := s.withFences(to.results)
	recall := to.pooled > 0 && s.recalls(to)
	if to.recalled && !recall {
		s.noteRecalled(to, false) // the reply ends the recall; a later one needs a new notification
	}
	reply := Reply{
		Status: status, Results: results, More: s.more, Config: s.config, Next: s.next(to, gapped),
		Recall: recall, InUse: s.inUse, Undecided: s.undecided(), Wanted: s.wanted, First: s.firstLeast(),
	}
	if recall && !s.config.Draining && s.firstLeast() <= s.evenShare() {
		reply.Share = s.evenShare()
	}
	return reply
}

// withFences returns the results with the fences of the grants among them. Grants are in
// the order of their Seqs.
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

// next returns the time within which a session has to send again, or 0 if heartbeats
// suffice. The session of the first ticket polls for expired holders. Another waiting
// session polls if its batch ended a gap that the semaphore's clock did not follow. Grants
// by time alone need polling because no notification announces them.
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

// noteHighest makes new Seqs higher than a Seq that a client has seen.
func (s *State) noteHighest(seen Seq) {
	if seen > s.lastSeq && seen <= Seq(max(s.last, 0))+MaxLead {
		s.lastSeq = seen
	}
}

// Woken returns the sessions to notify. They have got results, a recall, or a grant that
// will be due by time alone, since the last call and since their last reply. The store
// notifies their instances. A lost notification costs a wait until the next heartbeat.
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

// Instance returns the instance of a session, "" if there is no such session.
func (s *State) Instance(id Session) string {
	if found := s.sessions[id]; found != nil {
		return found.client.Instance
	}
	return ""
}

// Tombstone returns the number after which a semaphore of the same name has to start.
func (s *State) Tombstone() Seq { return max(s.lastSeq, Seq(s.lastSession)) }

// Check returns an error if the configuration is invalid.
func (c Config) Check() error {
	switch {
	case c.Capacity < 0 || c.Capacity > MaxCapacity:
		return fmt.Errorf("capacity %d: want 0 to %d", c.Capacity, int64(MaxCapacity))
	case c.Whole != 0 && c.Whole < c.Capacity:
		return fmt.Errorf("capacity %d of a total of %d: want at most the total", c.Capacity, c.Whole)
	case c.Ramp < 0 || c.Ramp > MaxCapacity:
		return fmt.Errorf("ramp %d: want permits per second, or 0 for at once", c.Ramp)
	case c.MaxWaiters < NoWaiters:
		return fmt.Errorf("at most %d waiters: want 0 for no bound, %d for none, or more", c.MaxWaiters, NoWaiters)
	case c.TTL < minTTL || c.TTL > maxTime:
		return fmt.Errorf("TTL of %v: want %v to %v", c.TTL.duration(), minTTL.duration(), maxTime.duration())
	case c.Kind > Rate:
		return fmt.Errorf("kind %d is unknown", c.Kind)
	case c.Kind == Rate && (c.Window <= 0 || c.Window > maxTime):
		return fmt.Errorf("window of %v: want %v to %v", c.Window.duration(), Micros(1).duration(), maxTime.duration())
	case c.Numbered && (c.Kind == Rate || c.Whole != 0):
		return errors.New("numbered permits: want a semaphore of one store whose permits are released")
	case c.Numbered && c.Capacity > MaxNumbered:
		return fmt.Errorf("capacity %d: want at most %d numbered permits", c.Capacity, MaxNumbered)
	}
	return nil
}

// MaxCapacity is the highest capacity. Every store counts up to it exactly, even with Lua's
// doubles.
const MaxCapacity = 1 << 40

// minTTL leaves time for a heartbeat and its retry on any network. maxTime is a year, far
// from any overflow.
const (
	minTTL  Micros = 100_000
	maxTime Micros = 365 * 24 * 3600 * second
)
