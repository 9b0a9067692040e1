package sema

import (
	"context"
	"sync/atomic"
	"time"
)

// A joint is one waiter in the lines of several semaphores. It enters all of
// them at one instant, with all their mutexes held, so joint waiters stand in
// the same order in every fair line they share, and the earliest of all
// waiters can always go on: no cycle of waiting is possible. It holds nothing
// while it waits.
//
// It is granted only with all mutexes held, when it is next in every line and
// fits everywhere. It is refused by a semaphore under that one's mutex alone:
// decide settles races among refusals, and a grant excludes them all. Its
// places in the other lines are dead from then on, stepped over by whoever
// meets them, and removed by the owner.
type joint struct {
	parts   []part // by core.id, the order of locking; each core once
	token   chan verdict
	verdict atomic.Uint32
}

type part struct {
	sem   *Semaphore
	place waiter
}

func newJoint(wants []localWant) *joint {
	j := &joint{parts: make([]part, len(wants)), token: make(chan verdict, 1)}
	for i, w := range wants {
		j.parts[i].sem = w.sem
		j.parts[i].place = waiter{n: uint64(w.n), joint: j}
	}
	return j
}

func (j *joint) decided() bool { return verdict(j.verdict.Load()) != pending }

func (j *joint) decide(v verdict) bool { return j.verdict.CompareAndSwap(uint32(pending), uint32(v)) }

func (j *joint) lock() {
	for i := range j.parts {
		j.parts[i].sem.core.mu.Lock()
	}
}

func (j *joint) unlock() {
	for i := range j.parts {
		j.parts[i].sem.core.mu.Unlock()
	}
}

// acquire waits until all parts are had at once. A refusal comes with the
// semaphore it is due to, nil if it is the context's.
func (j *joint) acquire(ctx context.Context) (verdict, *Semaphore) {
	if ctx.Err() != nil { // it may have ended while observers were told
		return cancelled, nil
	}
	if v, culprit := j.enter(); v != pending {
		return v, culprit
	}
	limit, impatient := j.limit()
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case v := <-j.token:
		return j.check(ctx, v)
	case <-ctx.Done():
		return j.leave(ctx, cancelled), nil
	case <-expired:
		return j.leave(ctx, timedOut), impatient
	}
}

// wouldWait is a guess, for observers: whether acquire will have to wait.
func (j *joint) wouldWait() bool {
	j.lock()
	defer j.unlock()
	for i := range j.parts {
		c := &j.parts[i].sem.core
		if c.debt > 0 || c.mustQueue() || c.free() < j.parts[i].place.n {
			return true
		}
	}
	return false
}

// limit is the shortest MaxWait of the semaphores, and whose it is.
func (j *joint) limit() (shortest time.Duration, whose *Semaphore) {
	for i := range j.parts {
		s := j.parts[i].sem
		if d := s.maxWait; d > 0 && (whose == nil || d < shortest) {
			shortest, whose = d, s
		}
	}
	return shortest, whose
}

// enter takes all parts now, or stands in all lines, or in none if any
// semaphore refuses.
func (j *joint) enter() (v verdict, culprit *Semaphore) {
	j.lock()
	for i := range j.parts {
		if v, culprit = j.parts[i].sem.core.refuses(j.parts[i].place.n), j.parts[i].sem; v != pending {
			j.count(v)
			j.unlock()
			return v, culprit
		}
	}
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.push(&j.parts[i].place)
		c.raiseFlags() // before looking, as in settle
	}
	v, culprit = pending, nil
	outs, won := j.grant()
	if won {
		v = granted
	} else if culprit = j.overLimit(); culprit != nil && j.decide(queueFull) {
		v = queueFull
		outs = j.withdraw()
		j.count(v)
	}
	if v != pending { // it has not waited in the queues it passed through
		for i := range j.parts {
			j.parts[i].sem.core.counts.notWaited++
		}
	}
	j.unlock()
	deliverAll(outs)
	return v, culprit
}

// overLimit is a semaphore in whose line the joint is one too many.
func (j *joint) overLimit() *Semaphore {
	for i := range j.parts {
		if c := &j.parts[i].sem.core; c.lineLimit > 0 && c.line.n >= c.lineLimit {
			return j.parts[i].sem
		}
	}
	return nil
}

// attempt grants the joint waiter if it can be, and then whoever that helps.
func (j *joint) attempt() {
	j.lock()
	outs, won := j.grant()
	j.unlock()
	if won {
		j.token <- granted
	}
	deliverAll(outs)
}

// grant grants the joint waiter if its turn has come, with all mutexes held.
func (j *joint) grant() (outs []wakes, won bool) {
	if j.decided() || !j.nextEverywhere() || !j.takeEverywhere() {
		return nil, false
	}
	j.decide(granted) // nobody else can, without one of the mutexes
	return j.withdraw(), true
}

// nextEverywhere reports whether it is the joint's turn in every line. In a
// LIFO line it always is, see meetJoint.
func (j *joint) nextEverywhere() bool {
	for i := range j.parts {
		p := &j.parts[i]
		c := &p.sem.core
		c.payDebt()
		if c.debt > 0 || c.order != LIFO && c.firstServable() != &p.place {
			return false
		}
	}
	return true
}

// takeEverywhere takes all parts or none.
func (j *joint) takeEverywhere() bool {
	for i := range j.parts {
		if !j.parts[i].sem.core.takeFlagged(j.parts[i].place.n) {
			for k := range i {
				j.parts[k].sem.core.word.Add(j.parts[k].place.n)
			}
			return false
		}
	}
	return true
}

// withdraw leaves all lines, with all mutexes held.
func (j *joint) withdraw() []wakes {
	outs := make([]wakes, len(j.parts))
	for i := range j.parts {
		c := &j.parts[i].sem.core
		if j.parts[i].place.verdict == inLine {
			c.pull(&j.parts[i].place)
		}
		outs[i] = c.settle()
	}
	return outs
}

// check looks at a verdict that was received: a done context never acquires,
// and after a refusal the places in the other lines are to be left.
func (j *joint) check(ctx context.Context, v verdict) (verdict, *Semaphore) {
	if v == granted {
		if ctx.Err() != nil {
			j.giveBack()
			return cancelled, nil
		}
		return granted, nil
	}
	culprit := j.refuser(v)
	j.leaveLines(v)
	return v, culprit
}

// leave ends the wait because the context ended or the time is up. If a
// verdict was faster, a grant is handed back, unless only the time is up.
func (j *joint) leave(ctx context.Context, why verdict) verdict {
	j.lock()
	won := j.decide(why)
	j.unlock()
	if won {
		j.leaveLines(why)
		return why
	}
	switch v := <-j.token; {
	case v != granted:
		j.leaveLines(why)
		return why
	case why == timedOut && ctx.Err() == nil:
		return granted
	}
	j.giveBack()
	return cancelled
}

// leaveLines leaves all queues after a wait that ended with v.
func (j *joint) leaveLines(v verdict) {
	j.lock()
	outs := j.withdraw()
	j.count(v)
	j.unlock()
	deliverAll(outs)
}

// giveBack returns what was granted to a caller whose context has ended.
func (j *joint) giveBack() {
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.give(j.parts[i].place.n)
		c.counted(cancelled)
	}
}

// count counts the call at all semaphores, with all mutexes held.
func (j *joint) count(v verdict) {
	for i := range j.parts {
		j.parts[i].sem.core.tally(v)
	}
}

// refuser is the semaphore in whose line the joint was when it was refused,
// but is no longer.
func (j *joint) refuser(v verdict) *Semaphore {
	j.lock()
	defer j.unlock()
	for i := range j.parts {
		if p := &j.parts[i]; p.place.verdict == v {
			return p.sem
		}
	}
	return j.parts[0].sem
}

// refuses is why n permits cannot be waited for together with others, or
// pending. To be parked is not among the choices, see ParkOversize.
func (c *core) refuses(n uint64) verdict {
	if v := c.phaseVerdict(); v != granted {
		return v
	}
	if c.oversize(n) {
		return tooLarge
	}
	return pending
}
