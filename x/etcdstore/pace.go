package etcdstore

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A pace measures the time that passes for a semaphore. Every process that writes to the
// semaphore measures a part of it. etcd has no clock that could be read, and the clocks of
// machines differ. So no entry has a time that is compared with a time on another machine.
//
// Each entry n carries Rₙ, the time that has been measured since the semaphore was
// created. A process that learns of n at oₙ on its own monotonic clock knows that at c at
// least c−oₙ has passed since n was written. It keeps base = max(Rₙ−oₙ), and an entry of
// its own that it prepares at c has R = base+c. With each entry that it learns of, it
// lowers base to at most Rₙ−oₙ+lead.
//
// No session expires while its holder relies on a lease: let tₙ be the real time at which
// n was committed. Then for any two entries n before m
//
//	Rₘ−Rₙ ≤ tₘ−tₙ + lead
//
// The process that wrote m had learned of n before, at oₙ ≥ tₙ. At that time it lowered
// base to at most Rₙ−oₙ+lead. If no entry has raised base since, Rₘ = base+c with c ≤ tₘ
// gives the inequality. Otherwise let k be the last entry that raised base. The inequality
// holds from n to k by induction, and from k to m without the lead.
//
// The semaphore's own clock, on which sessions expire, advances by no more than R does. A
// holder relies on its lease for two thirds of a TTL. In that time the clock advances by at
// most two thirds of a TTL and the lead, which is a sixth. A session expires after a whole
// TTL. No wall clock is part of this argument.
//
// Expired sessions are noticed: the first waiter of the queue sends a batch every sixth of
// a TTL, and measures all of that time, less what the lead cuts off.
//
// Rates and ramps, and whether a session seems overdue, depend on the highest of the wall
// clocks (Last in [protocol.Image]). Last advances by R where all wall clocks are behind
// it. A clock that is ahead costs a burst, once.
type pace struct {
	clock     clock
	base      protocol.Micros
	known     bool            // base is known
	at        protocol.Micros // R of the last entry
	passed    protocol.Micros // R with the time that take has returned since, which is not written
	learnedAt protocol.Micros // time on the monotonic clock at which the last entry was learned of
}

// A clock has the clocks of this process.
type clock struct {
	elapsed func() protocol.Micros // monotonic, from any time on
	wall    func() protocol.Micros
	fixed   func() protocol.Micros // for tests: replaces both, as if etcd had a clock; nil otherwise
}

// time returns the time for lists.
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

// learn updates the pace with R of an entry. It is called for each entry, in order, as soon
// as the entry is known to be written. The lead is a sixth of the TTL.
func (p *pace) learn(r, ttl protocol.Micros) {
	p.learnedAt = p.clock.elapsed()
	lowest := r - p.learnedAt
	if !p.known {
		p.base, p.known = lowest, true
	}
	p.base = min(max(p.base, lowest), lowest+ttl/6)
	p.at, p.passed = r, r
}

// reset discards base, when entries may have been missed.
func (p *pace) reset() { p.known = false }

// rewind makes take return the time again that was not written.
func (p *pace) rewind() { p.passed = p.at }

// sinceLearned returns how much time has surely passed since the last entry.
func (p *pace) sinceLearned() protocol.Micros { return p.clock.elapsed() - p.learnedAt }

// due returns how much time has passed that take has not returned yet.
func (p *pace) due() protocol.Micros { return max(0, p.base+p.clock.elapsed()-p.passed) }

// take returns the time that is due, and counts it as passed.
func (p *pace) take() protocol.Micros {
	due := p.due()
	p.passed += due
	return due
}
