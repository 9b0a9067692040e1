package protocol

import (
	"cmp"
	"slices"
)

// advance advances the semaphore's own clock. It follows the store's clock, but by at most a
// sixth of the TTL per call and never back, because a store's clock may step. A step forward,
// however large, adds a sixth. So two steps within the two thirds of a TTL for which a holder
// relies on its lease do not end the lease early. A step back only makes sessions live longer.
// Deadlines of sessions and tickets are on this clock. Ramps and windows are on the store's
// clock, because this one falls behind when calls are rare. A step of the store's clock costs
// them a burst.
func (s *State) advance(now Micros) {
	if now < s.last {
		s.shorten(now)
	}
	s.clock += min(max(now-s.last, 0), s.config.TTL/6)
	s.last = now
	s.expire()
}

// TickEvery returns the interval at which [State.Tick] should be called; 0 if there is no
// session that could expire.
func (s *State) TickEvery() Micros {
	if len(s.sessions) == 0 {
		return 0
	}
	return s.config.TTL / 12
}

// Tick advances the semaphore's clock although no batch arrives, and reports whether enough
// time had passed. A store inside a process calls it, so that the permits of expired sessions
// are free before a client asks for them. Over other stores the clock stands still until a
// client sends a batch.
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

// effective returns how much may be in use now: the target, or what the ramp has reached.
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

// due returns the time until the first ticket can be granted by time alone, and whether it
// can be.
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

// A spending is the cost of a grant of a Rate until its window has passed.
type spending struct {
	until   Micros
	weight  int64
	seq     Seq     // of the grant
	session Session // the session of the grant, which alone may settle it
}

// spend records the cost of the grant with the last Seq.
func (s *State) spend(by *session, weight int64) {
	s.spent = append(s.spent, spending{s.last + s.config.Window, weight, s.lastSeq, by.id})
	s.journal.spend()
}

// settleCost corrects the cost of a grant of a Rate. The difference to a lower cost is free at
// once, the difference to a higher cost is charged. The excess of a grant that has left the
// window is charged from now. A cost above the capacity counts as the capacity, because no
// window admits more.
func (s *State) settleCost(from *session, op Op) {
	if s.config.Kind != Rate || op.Weight < 0 || op.Least < 0 {
		s.addResult(from, Result{Kind: Invalid, Ticket: op.Ticket})
		return
	}
	cost := min(op.Weight, max(s.config.Whole, s.config.Capacity))
	i, found := slices.BinarySearchFunc(s.spent, op.Lease, func(one spending, seq Seq) int { return cmp.Compare(one.seq, seq) })
	switch {
	case found && s.spent[i].session == from.id:
		s.inUse += cost - s.spent[i].weight
		s.spent[i].weight = cost
		s.journal.spend()
		s.journal.markVital() // acknowledged to the client: a refund or a charge must survive a restart
	case !found && cost > op.Least:
		s.lastSeq++
		s.inUse += cost - op.Least
		s.spend(from, cost-op.Least)
		s.journal.markVital()
	}
}

// shorten adapts to a clock that stepped back: nothing is spent for longer than a window, and
// no ramp takes longer than it would from now on.
func (s *State) shorten(now Micros) {
	for i := range s.spent {
		s.spent[i].until = min(s.spent[i].until, now+s.config.Window)
		s.journal.spend()
	}
	s.ramp = ramp{from: s.effective(), at: now}
}

// expire frees grants of a Rate that are older than the window.
func (s *State) expire() {
	n := 0
	for n < len(s.spent) && s.spent[n].until <= s.last {
		s.inUse -= s.spent[n].weight
		s.journal.spend()
		n++
	}
	s.spent = s.spent[n:]
}
