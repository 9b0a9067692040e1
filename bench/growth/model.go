package growth

import (
	"math"
	"math/rand/v2"
)

// An access is a number of atomic operations on a cache line, one after the other.
type access struct{ line, operations int }

// A hardware describes what cores and their cache lines need, in ns.
type hardware struct {
	operation float64 // an atomic operation on a line that the core owns
	between   float64 // other work after an access
	transfer  float64 // from the request of a line until another core has it
}

// scatter selects a line for a core as the address of a stack does: at random, but always
// the same.
func scatter(seed, core, lines int) int {
	return rand.New(rand.NewPCG(uint64(core), uint64(seed*1_000_003+lines))).IntN(lines)
}

// cost returns the mean time of a pair if each core repeats its accesses. It is the mean of
// several placements, since which lines cores share by accident decides much.
func (h hardware) cost(cores int, pair func(seed, core, cores int) []access) (mean float64) {
	const seeds = 10
	for seed := range seeds {
		var programs [][]access
		for core := range cores {
			programs = append(programs, pair(seed, core, cores))
		}
		mean += h.simulate(programs) / seeds
	}
	return mean
}

// A cacheLine belongs to one core at a time. A core that wants it requests it. The request
// takes half of a transfer to reach the owner, which meanwhile continues to use the line, and
// the line takes the other half. Requests are served in their order.
type cacheLine struct {
	owner    int     // -1: none yet
	used     float64 // when the owner's last operation on it ends
	leaves   float64 // when it leaves the owner; infinite without a request
	requests []int   // the cores that wait for it
}

// simulate returns the mean time of a pair.
func (h hardware) simulate(programs [][]access) float64 {
	const pairs = 300 // by each core
	type core struct {
		at      float64 // when it begins its next access
		next    int     // of its program
		left    int     // accesses
		waiting bool    // for a line
	}
	random := rand.New(rand.NewPCG(1, 2))
	cores, lines := make([]core, len(programs)), map[int]*cacheLine{}
	for c := range cores {
		cores[c] = core{at: random.Float64() * 100, left: pairs * len(programs[c])}
	}
	var sum float64
	perform := func(c int, l *cacheLine, at float64) {
		k := &cores[c]
		l.used = at + h.operation*float64(programs[c][k.next].operations)
		k.at, k.next, k.left = l.used+h.between, (k.next+1)%len(programs[c]), k.left-1
	}
	for {
		c, leaving, first := -1, (*cacheLine)(nil), math.Inf(1) // what happens first
		for i, k := range cores {
			if k.left > 0 && !k.waiting && k.at < first {
				c, first = i, k.at
			}
		}
		for _, l := range lines {
			if len(l.requests) > 0 && l.leaves <= first {
				leaving, first = l, l.leaves
			}
		}
		switch {
		case leaving != nil:
			l := leaving
			c, l.requests = l.requests[0], l.requests[1:]
			l.owner, cores[c].waiting = c, false
			perform(c, l, l.leaves+h.transfer/2)
			if l.leaves = math.Inf(1); len(l.requests) > 0 {
				l.leaves = l.used
			}
			continue
		case c < 0:
			for _, k := range cores {
				sum += k.at
			}
			return sum / float64(pairs*len(cores))
		}
		line := programs[c][cores[c].next].line
		l := lines[line]
		if l == nil {
			l = &cacheLine{owner: c, leaves: math.Inf(1)}
			lines[line] = l
		}
		if l.owner == c {
			perform(c, l, cores[c].at)
			if len(l.requests) > 0 {
				l.leaves = max(l.leaves, l.used)
			}
			continue
		}
		cores[c].waiting, l.requests = true, append(l.requests, c)
		if math.IsInf(l.leaves, 1) {
			l.leaves = max(cores[c].at+h.transfer/2, l.used)
		}
	}
}
