package fleet

import (
	"fmt"
	"math"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// maxRateIdle bounds how long an unused session of a rate is kept open for settlements.
const maxRateIdle = protocol.Micros(time.Hour / time.Microsecond)

// Settle corrects what a permit of a [Rate] has cost, once that is known. Less than its
// weight is refunded: the difference is available again to the whole fleet, as soon as the
// store has received it. More is charged: later acquires wait until the difference has left
// the window. A cost above the capacity counts as the capacity. Settle does no I/O: the next
// batch sends it.
//
// The first Settle of a permit counts. If the permit has left the window, there is nothing
// to refund, and the excess is charged from now. The same holds if its session was lost; the
// permit then stays charged until it leaves the window. So it does if its client crashes
// before Settle.
//
// Settle does nothing for inert permits and for semaphores that are not a rate. It panics on
// a negative cost, and on a permit of another gate.
func (s *Semaphore) Settle(p sema.Permit, cost int64) {
	if p.Weight() == 0 {
		return
	}
	valid := cost >= 0
	switch l := p.Lease().(type) {
	case *lease:
		if valid = valid && l.grant.of.session == s.session; valid {
			l.settle(cost)
		}
	case *spentLease:
		if valid = valid && l.of.session == s.session; valid {
			l.settle(p.Weight(), cost)
		}
	default:
		valid = valid && !s.isRate()
	}
	if !valid {
		panic(fmt.Sprintf("fleet: Settle(%v, %d): want a permit of semaphore %q and a cost ≥ 0", p, cost, s.settings.label))
	}
}

// Delay returns the time after which n permits of a [Rate] are probably available to a caller
// that arrives now. It computes that from the last reply of the store and from what this
// client has acquired since; it assumes that other clients have used the rate evenly. It does
// no I/O. It is math.MaxInt64 if n is more than the capacity. It is 0 if nothing is known yet,
// and for semaphores that are not a rate.
func (s *Semaphore) Delay(n int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delayLocked(n)
}

// PauseUntil makes a [Rate] grant nothing before t, because an upstream has sent a
// Retry-After. This client's acquires wait until then, and its tries fail with ErrFull.
// Permits return meanwhile. A time that has passed ends the pause. It does no I/O.
//
// The other clients are paused, too, until t or until this client's latest permit leaves the
// window, if that is earlier: the permit costs the whole capacity meanwhile. So a client that
// crashes cannot pause the others for longer than a window. If this client has no permit in
// the window, the pause is its own.
func (s *Semaphore) PauseUntil(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isRateLocked() && !s.closed {
		s.pauseLocked(time.Until(t))
	}
}

func (s *session) isRate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isRateLocked()
}

// isRateLocked reports whether the semaphore is a rate, as far as is known.
func (s *session) isRateLocked() bool { return s.windowLocked() > 0 }

// windowLocked returns the window of a rate, 0 if the semaphore is none.
func (s *session) windowLocked() protocol.Micros {
	switch c := s.last.Config; {
	case s.knownConfigLocked() && c.Kind == protocol.Rate:
		return c.Window
	case s.knownConfigLocked():
		return 0
	}
	return protocol.Micros(s.settings.config.Rate.Microseconds())
}

// knownConfigLocked reports whether the store has replied with its configuration.
func (s *session) knownConfigLocked() bool { return s.last.Config.TTL != 0 }

// settle corrects what the lease of a rate has cost, the first time.
func (l *lease) settle(cost int64) {
	g, s := l.grant, l.grant.of.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.settled || g.peer.Config().Kind != protocol.Rate {
		return
	}
	l.settled = true
	before := g.cost
	g.cost = min(max(0, before-l.weight)+min(cost, protocol.MaxCapacity), protocol.MaxCapacity)
	if g.cost == before || s.pause.anchor == g { // resumeLocked settles the anchor
		return
	}
	s.settleLocked(g, before)
}

// settleLocked requests the settlement of a grant whose cost was before, as the store knows
// it. If the grant has left the window, the store charges the difference to a higher cost.
// A grant of a lost session cannot be settled any more: its excess is owed.
func (s *session) settleLocked(g *grant, before int64) {
	if g.peer != s.peer {
		s.oweLocked(g.cost - before)
		return
	}
	s.requestLocked(s.settlementLocked(g.fence.Seq, before, g.cost))
	s.correctLocked(g, g.cost-before)
}

// correctLocked changes the estimated use until the next reply.
func (s *session) correctLocked(g *grant, by int64) {
	if g.at+s.windowLocked() > s.client.clock() {
		s.spendings.correct(g.at, by)
		s.inUse.Add(by)
	}
}

// settlementLocked returns the operation that settles a grant.
func (s *session) settlementLocked(grant protocol.Seq, before, cost int64) protocol.Op {
	return protocol.Op{Verb: protocol.Settle, Ticket: s.newTicketLocked(), Lease: grant, Least: before, Weight: cost}
}

// A debt is the excess of grants of lost sessions. The next session charges it.
type debt struct {
	weight int64
	until  protocol.Micros // after which it would have left the window
}

// oweLocked adds to the debt, and charges it as soon as a session is open.
func (s *session) oweLocked(excess int64) {
	if excess <= 0 || s.closed {
		return
	}
	s.owed = debt{min(s.owed.weight+excess, protocol.MaxCapacity), s.client.clock() + s.windowLocked()}
	s.chargeLocked()
	s.startDriverLocked()
}

// owesLocked reports whether there is a debt that is not charged yet.
func (s *session) owesLocked() bool {
	if s.owed.weight > 0 && s.client.clock() >= s.owed.until {
		s.owed = debt{}
	}
	return s.owed.weight > 0
}

// chargeLocked requests the charge of the debt, if a session is open: the settlement of a
// grant that does not exist.
func (s *session) chargeLocked() {
	if s.peer != nil && s.owesLocked() {
		s.peer.Request(s.settlementLocked(0, 0, s.owed.weight))
		s.owed = debt{}
	}
}

// delayLocked implements [Semaphore.Delay].
func (s *session) delayLocked(n int64) time.Duration {
	window, capacity, now := s.windowLocked(), s.capacity.Load(), s.client.clock()
	switch {
	case window == 0:
		return 0
	case capacity > 0 && n > capacity:
		return math.MaxInt64
	case s.failOpen.applies():
		return max(s.pauseLeftLocked(now), s.failOpen.delay(n, micros(window)))
	case !s.knownConfigLocked():
		return s.pauseLeftLocked(now)
	case capacity == 0: // paused by an operator
		return micros(window)
	}
	if s.peer != nil {
		n += s.last.Wanted // those that are queued come first
	}
	whole := (n - 1) / capacity // windows that are used up by those
	return max(s.pauseLeftLocked(now), micros(protocol.Micros(whole)*window+s.spendings.delay(now, window, capacity-(n-whole*capacity))))
}
