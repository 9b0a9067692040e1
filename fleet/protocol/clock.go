package protocol

import (
	"cmp"
	"slices"
)

// advance moves the semaphore's own clock on. It follows the engine's, but by
// no more than a sixth of the TTL at a time and never back: an engine's clock
// may step. A step forward, however large, adds a sixth, so two of them within
// the two thirds of a TTL that a holder trusts in rob nobody; a step back only
// makes sessions live longer. Deadlines of sessions and tickets are on this
// clock. (Ramps and windows are on the engine's: there a step costs a burst,
// and sparse use must not slow them.)
func (s *State) advance(now Micros) {
	if now < s.last {
		s.shorten(now)
	}
	s.clock += min(max(now-s.last, 0), s.config.TTL/6)
	s.last = now
	s.expire()
}

// TickEvery returns how often [State.Tick] is to be called; 0: not at all, since
// there is no session that could expire.
func (s *State) TickEvery() Micros {
	if len(s.sessions) == 0 {
		return 0
	}
	return s.config.TTL / 12
}

// Tick moves the semaphore's clock on though no batch arrives. A store in a process
// calls it, so that what expired sessions held is free before a client asks; over
// other stores the clock stands still until one does. It reports whether time had
// passed.
func (s *State) Tick(now Micros) bool {
	if passed := now - s.last; passed >= 0 && passed < s.TickEvery() {
		return false
	}
	s.begin(now)
	return true
}

// A ramp is a capacity that rises from some value at some time.
type ramp struct {
	from int64
	at   Micros
}

// effective is how much may be in use now: the target, or what a rise to it has
// reached.
func (s *State) effective() int64 {
	target := s.config.Capacity
	if s.config.Ramp == 0 || s.ramp.from >= target {
		return target
	}
	passed := max(s.last-s.ramp.at, 0)
	seconds, rest := int64(passed/second), int64(passed%second)
	if seconds > (target-s.ramp.from)/s.config.Ramp {
		return target
	}
	risen := seconds*s.config.Ramp + rest*s.config.Ramp/int64(second)
	return min(target, s.ramp.from+risen)
}

const second Micros = 1_000_000

// due is how long until the first in line may be granted by time alone.
func (s *State) due() (Micros, bool) {
	first := s.first()
	if first == nil {
		return 0, false
	}
	missing := s.inUse + first.least - s.effective()
	if missing <= 0 || first.least > s.config.Capacity {
		return 0, false
	}
	if s.config.Kind == Rate {
		for _, spent := range s.spent {
			if missing -= spent.weight; missing <= 0 {
				return max(spent.until-s.last, 0), true
			}
		}
	}
	if target := s.config.Capacity; s.config.Ramp > 0 && s.effective() < target && s.inUse+first.least <= target {
		needed := s.inUse + first.least - s.ramp.from
		at := s.ramp.at + Micros((needed*int64(second)+s.config.Ramp-1)/s.config.Ramp)
		return max(at-s.last, 0), true
	}
	return 0, false
}

// A spending is what a grant of a Rate has taken, until its window has passed.
type spending struct {
	until   Micros
	weight  int64
	seq     Seq     // of the grant
	session Session // that it was granted to, and that alone may settle it
}

// spend notes what the grant with the last Seq has taken.
func (s *State) spend(by *session, weight int64) {
	s.spent = append(s.spent, spending{s.last + s.config.Window, weight, s.lastSeq, by.id})
	s.journal.spend()
}

// settleCost corrects what a grant of a Rate has cost. Less than was granted is free
// at once; more is charged, and the excess of a grant that has left the window is
// charged from now. Costs above the capacity count as the capacity: no
// window admits more.
func (s *State) settleCost(from *session, op Op) {
	if s.config.Kind != Rate || op.Weight < 0 || op.Least < 0 {
		s.tell(from, Result{Kind: Invalid, Ticket: op.Ticket})
		return
	}
	cost := min(op.Weight, max(s.config.Whole, s.config.Capacity))
	i, found := slices.BinarySearchFunc(s.spent, op.Lease, func(one spending, seq Seq) int { return cmp.Compare(one.seq, seq) })
	switch {
	case found && s.spent[i].session == from.id:
		s.inUse += cost - s.spent[i].weight
		s.spent[i].weight = cost
		s.journal.spend()
		s.journal.matter() // it is acknowledged: a refund or a charge must survive a restart
	case !found && cost > op.Least:
		s.lastSeq++
		s.inUse += cost - op.Least
		s.spend(from, cost-op.Least)
		s.journal.matter()
	}
}

// shorten is for a clock that stepped back: nothing is spent for longer than a
// window, and no rise takes longer than it would from now on.
func (s *State) shorten(now Micros) {
	for i := range s.spent {
		s.spent[i].until = min(s.spent[i].until, now+s.config.Window)
		s.journal.spend()
	}
	s.ramp = ramp{from: s.effective(), at: now}
}

// expire gives back what of a Rate is older than the window.
func (s *State) expire() {
	n := 0
	for n < len(s.spent) && s.spent[n].until <= s.last {
		s.inUse -= s.spent[n].weight
		s.journal.spend()
		n++
	}
	s.spent = s.spent[n:]
}
