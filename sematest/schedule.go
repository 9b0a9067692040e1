package sematest

import (
	"math/rand/v2"
	"time"
)

// A chooser decides which goroutine takes the next step.
type chooser interface {
	next(ready []*parked) int
	delay(most time.Duration) time.Duration
}

// newChooser returns the chooser of a seed. Half of the seeds choose each step at random,
// which finds what many schedules have. The others give goroutines priorities that change
// at a few random steps, which finds the rare ones: a schedule of n goroutines and k steps
// finds a fault that needs d particular orderings with probability 1/(n·k^(d−1)) or more
// (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding
// bugs", 2010).
func newChooser(seed uint64) chooser {
	r := random{rand.New(rand.NewPCG(seed, 0x5e3a))}
	if seed%2 == 0 {
		return r
	}
	p := &priorities{random: r, of: map[*task]uint64{}}
	for range 3 {
		p.changes = append(p.changes, 1+r.IntN(60))
	}
	return p
}

// random chooses each step with equal probability.
type random struct{ *rand.Rand }

func (r random) next(ready []*parked) int { return r.IntN(len(ready)) }

// delay returns 0 mostly, and otherwise a time of any order of magnitude up to most.
func (r random) delay(most time.Duration) time.Duration {
	if most == 0 || r.IntN(4) != 0 {
		return 0
	}
	return most >> r.IntN(20)
}

// priorities chooses the goroutine of the highest priority, and lowers it at a few steps.
type priorities struct {
	random
	of      map[*task]uint64
	step    int
	changes []int // steps at which the goroutine that would run gets the lowest priority
}

func (p *priorities) next(ready []*parked) int {
	p.step++
	best := p.highest(ready)
	for _, at := range p.changes {
		if at == p.step {
			p.of[ready[best].task] = uint64(p.IntN(1 << 8)) // below all initial ones
			best = p.highest(ready)
		}
	}
	return best
}

func (p *priorities) highest(ready []*parked) (best int) {
	for i, r := range ready {
		if _, known := p.of[r.task]; !known {
			p.of[r.task] = p.Uint64() | 1<<32
		}
		if p.of[r.task] > p.of[ready[best].task] {
			best = i
		}
	}
	return best
}
