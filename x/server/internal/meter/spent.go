package meter

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// spentSlots is the number of intervals into which the window of a rate is divided: what [Series.Next]
// returns is late by at most one of them.
const spentSlots = 64

// spent are the permits of a rate that were granted in its window: a ring of sums, one for each
// interval.
type spent struct {
	window  time.Duration
	newest  int64 // number of the newest interval: time / (window / spentSlots)
	weights [spentSlots]int64
}

func (r *spent) slot() int64 { return max(1, int64(r.window)/spentSlots) }

// advance empties the intervals that have begun since the last call.
func (r *spent) advance(now time.Time) {
	slot := max(r.newest, now.UnixNano()/r.slot())
	for empty := max(r.newest+1, slot-spentSlots+1); empty <= slot; empty++ {
		r.weights[empty%spentSlots] = 0
	}
	r.newest = slot
}

// spend records a grant of a rate.
func (s *Series) spend(c protocol.Config, weight int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window := time.Duration(c.Window) * time.Microsecond
	if s.spent == nil || s.spent.window != window {
		s.spent = &spent{window: window}
	}
	s.spent.advance(now)
	s.spent.weights[s.spent.newest%spentSlots] += weight
}

// Next returns when the next permit of a rate becomes free, at the latest; false: nothing was granted
// in its window. All permits that this server has granted in the window are returned as weight: if
// more are in use, others have granted them, and one may become free sooner.
func (s *Series) Next(now time.Time) (in time.Duration, weight int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent == nil {
		return 0, 0, false
	}
	s.spent.advance(now)
	first := int64(-1)
	for n := s.spent.newest - spentSlots + 1; n <= s.spent.newest; n++ {
		if w := s.spent.weights[(n%spentSlots+spentSlots)%spentSlots]; w > 0 {
			weight += w
			if first < 0 {
				first = n
			}
		}
	}
	if first < 0 {
		return 0, 0, false
	}
	end := time.Unix(0, (first+1)*s.spent.slot())
	return max(0, end.Add(s.spent.window).Sub(now)), weight, true
}
