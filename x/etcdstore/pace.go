package etcdstore

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A pace is how time is told to a semaphore, of which every process that writes
// to it measures a part. etcd has no clock to ask, and the clocks of machines
// differ; so no entry has a time on it that is compared with the time elsewhere.
//
// Each entry n carries Rₙ, the time that has been measured in the life of the
// semaphore. A process that learns of it at oₙ on its own monotonic clock knows
// that at c no less than c−oₙ has passed since n was written. It keeps
// base = max(Rₙ−oₙ), by which an entry of its own that it prepares at c has
// R = base+c, and lowers it for each entry it learns of to Rₙ−oₙ+lead at most.
//
// That nobody is robbed: let tₙ be the real time at which n was committed. Then
// for any two entries n before m
//
//	Rₘ−Rₙ ≤ tₘ−tₙ + lead
//
// since who wrote m had learned of n, at oₙ ≥ tₙ, so that its base was Rₙ−oₙ+lead
// at most, or was raised since by an entry k between the two, of which the same
// is true by induction; and c ≤ tₘ. The semaphore's own clock, on which sessions
// die, is moved by no more than R is. A holder trusts for two thirds of a TTL;
// in that time it moves by two thirds and the lead, a sixth, and a session dies
// after a whole one. No wall clock has a part in this, whatever it shows.
//
// That the dead are noticed: who waits first in line speaks every sixth of a
// TTL, and measures all of it, less what the lead cuts off.
//
// Rates and ramps, and whether somebody seems overdue, are by the highest of the
// wall clocks (last in [protocol.Image]), and it goes on by R where they are
// behind it. A clock that is ahead costs a burst, once.
type pace struct {
	clock clock
	base  protocol.Micros
	known bool            // that base is
	at    protocol.Micros // R of the last entry
	told  protocol.Micros // R with what was told since, but not written down
	heard protocol.Micros // when the last entry was learned of
}

// A clock is this process's.
type clock struct {
	elapsed func() protocol.Micros // is monotonic, from any time on
	wall    func() protocol.Micros
	fixed   func() protocol.Micros // for tests: is all there is to time, as with an engine that has a clock; nil otherwise
}

// time returns the time of lists.
func (c clock) time() protocol.Micros {
	if c.fixed != nil {
		return c.fixed()
	}
	return c.wall()
}

func machineClock() clock {
	start := time.Now()
	return clock{
		elapsed: func() protocol.Micros { return protocol.Micros(time.Since(start).Microseconds()) },
		wall:    func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) },
	}
}

// learn is for each entry, in order, as soon as it is known to be written.
func (p *pace) learn(r, ttl protocol.Micros) {
	p.heard = p.clock.elapsed()
	lowest := r - p.heard
	if !p.known {
		p.base, p.known = lowest, true
	}
	p.base = min(max(p.base, lowest), lowest+ttl/6)
	p.at, p.told = r, r
}

// forget is when there may be entries that were missed.
func (p *pace) forget() { p.known = false }

// again is when what was told is to be told again.
func (p *pace) again() { p.told = p.at }

// sinceLearned is how much has surely passed since the last entry.
func (p *pace) sinceLearned() protocol.Micros { return p.clock.elapsed() - p.heard }

// due is how much time is to be told now.
func (p *pace) due() protocol.Micros { return max(0, p.base+p.clock.elapsed()-p.told) }

// tell is that, and notes that it is told.
func (p *pace) tell() protocol.Micros {
	due := p.due()
	p.told += due
	return due
}
