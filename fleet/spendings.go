package fleet

import (
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// spendings estimates how much of a rate is used, and when that leaves the window. It knows
// the grants of this client, and how much all clients had used at the time of the last reply.
// It assumes that the use of the others was spread evenly over the window before.
type spendings struct {
	own      []spending // by time; at most one for each quantum
	others   int64      // used by other clients as of observed
	observed protocol.Micros
}

// A spending is what this client was granted in one quantum of time.
type spending struct {
	at     protocol.Micros // of the last grant in it
	weight int64
}

// quanta bounds the length of the list: grants within a 64th of a window count as one.
const quanta = 64

// spend adds a grant.
func (s *spendings) spend(now, window protocol.Micros, weight int64) {
	s.own = slices.DeleteFunc(s.own, func(one spending) bool { return one.at+window <= now })
	quantum := max(1, window/quanta)
	if last := len(s.own) - 1; last >= 0 && s.own[last].at/quantum == now/quantum {
		s.own[last].at = now
		s.own[last].weight += weight
		return
	}
	s.own = append(s.own, spending{now, weight})
}

// correct changes the cost of a grant in the window.
func (s *spendings) correct(at protocol.Micros, by int64) {
	if i := slices.IndexFunc(s.own, func(one spending) bool { return one.at >= at }); i >= 0 {
		s.own[i].weight += by
	}
}

// observe notes how much all clients have used, according to a reply.
func (s *spendings) observe(now, window protocol.Micros, inUse int64) {
	own := int64(0)
	for _, one := range s.own {
		if one.at+window > now {
			own += one.weight
		}
	}
	s.others, s.observed = max(0, inUse-own), now
}

// used returns the estimated use at a time from now on.
func (s *spendings) used(at, window protocol.Micros) (sum int64) {
	for _, one := range s.own {
		if one.at+window > at {
			sum += one.weight
		}
	}
	if left := s.observed + window - at; left > 0 {
		sum += int64(float64(s.others) * min(1, float64(left)/float64(window)))
	}
	return sum
}

// delay returns the time after which at most a given weight is used; a window if it is
// negative.
func (s *spendings) delay(now, window protocol.Micros, most int64) protocol.Micros {
	low, high := protocol.Micros(0), window // used(high) ≤ most, if anything is
	for low < high {
		middle := low + (high-low)/2
		if s.used(now+middle, window) <= most {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}
