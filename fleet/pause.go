package fleet

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A pause is a time in which this client requests no permits, see [Semaphore.PauseUntil].
// Waiters that arrive meanwhile are held: they are requested when it ends, in their order.
// The session's mutex guards it.
type pause struct {
	until  protocol.Micros // 0: there is no pause
	anchor *grant          // which costs the whole capacity at the store meanwhile; nil: none
	cost   int64           // of the anchor when the pause began
	timer  *time.Timer
}

// pauseLocked begins a pause, or changes when it ends.
func (s *session) pauseLocked(d time.Duration) {
	now := s.client.clock()
	if d <= 0 {
		s.resumeLocked()
		return
	}
	p := &s.pause
	p.until = now + protocol.Micros(min(d, math.MaxInt64/2)/time.Microsecond) + 1
	s.setPauseTimerLocked(now)
	s.failOpen.pauseLocked(true)
	if p.anchor == nil && s.latest != nil && s.latest.peer == s.peer && s.latest.at+s.windowLocked() > now {
		p.anchor, p.cost = s.latest, s.latest.cost
		s.requestLocked(s.settlementLocked(p.anchor.fence.Seq, protocol.MaxCapacity, protocol.MaxCapacity)) // charges nothing if it has left the window
	}
}

func (s *session) setPauseTimerLocked(now protocol.Micros) {
	left := micros(s.pause.until - now)
	if s.pause.timer == nil {
		s.pause.timer = time.AfterFunc(left, s.endPause)
	} else {
		s.pause.timer.Reset(left)
	}
}

// endPause ends the pause if it is over.
func (s *session) endPause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.client.clock(); now < s.pause.until {
		s.setPauseTimerLocked(now)
		return
	}
	s.resumeLocked()
}

// resumeLocked ends the pause: the anchor costs again what it did, and the waiters that were
// held are requested.
func (s *session) resumeLocked() {
	if s.pause.until == 0 {
		return
	}
	s.pause.until = 0
	s.pause.timer.Stop()
	s.failOpen.pauseLocked(false)
	if s.closed {
		return
	}
	if anchor := s.pause.anchor; anchor != nil {
		s.pause.anchor = nil
		s.requestLocked(s.settlementLocked(anchor.fence.Seq, s.pause.cost, anchor.cost))
		s.correctLocked(anchor, anchor.cost-s.pause.cost)
	}
	for _, ticket := range slices.Sorted(maps.Keys(s.waiters)) {
		if w := s.waiters[ticket]; w.held {
			w.held = false
			if s.peer != nil {
				s.peer.Request(*w.op)
			}
		}
	}
	s.startDriverLocked()
}

// forgetAnchorLocked handles the loss of the session of the anchor: the store keeps its cost
// until it leaves the window.
func (s *session) forgetAnchorLocked() {
	if anchor := s.pause.anchor; anchor != nil {
		s.pause.anchor = nil
		s.oweLocked(anchor.cost - s.pause.cost)
	}
}

// pauseLeftLocked returns how long the pause lasts.
func (s *session) pauseLeftLocked(now protocol.Micros) time.Duration {
	return micros(max(0, s.pause.until-now))
}

// holdLocked holds a waiter that arrives during a pause.
func (s *session) holdLocked(w *waiter) bool {
	if s.pause.until == 0 || w.call == nil {
		return false
	}
	w.held, w.inline = true, false
	s.tally.queue(w.call)
	w.noteQueued()
	return true
}

// rejectPaused rejects a try during a pause.
func (s *session) rejectPaused(c *call) error {
	s.mu.Lock()
	left := s.pauseLeftLocked(s.client.clock())
	s.mu.Unlock()
	if left == 0 {
		return nil
	}
	fault := s.rejection(c.op, c.weight(), sema.ErrFull).(*sema.Error)
	fault.Detail, fault.After = "the rate is paused", left
	return fault
}
