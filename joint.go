package sema

import (
	"context"
	"sync/atomic"
	"time"
)

// A joint is one waiter in the queues of several semaphores. It enters all of
// them at one instant, with all their mutexes held, so joint waiters stand in
// the same order in every fair queue they share, and the earliest of all
// waiters can always go on: no cycle of waiting is possible. It holds nothing
// while it waits.
//
// It is granted only with all mutexes held, when it is next in every queue and
// fits everywhere. It is rejected by a semaphore under that one's mutex alone:
// decide settles races among rejections, and a grant excludes them all. Its
// places in the other queues are dead from then on, stepped over by whoever
// meets them, and removed by the owner.
type joint struct {
	parts  []part // by core.id, the order of locking; each core once
	token  chan status
	status atomic.Uint32
}

type part struct {
	sem   *Semaphore
	place waiter
}

func newJoint(wants []localWant) *joint {
	j := &joint{parts: make([]part, len(wants)), token: make(chan status, 1)}
	for i, w := range wants {
		j.parts[i].sem = w.sem
		j.parts[i].place = waiter{n: uint64(w.n), joint: j}
	}
	return j
}

func (j *joint) decided() bool { return status(j.status.Load()) != pending }

func (j *joint) decide(v status) bool { return j.status.CompareAndSwap(uint32(pending), uint32(v)) }

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

// acquire waits until all parts are acquired at once. A rejection comes with the
// semaphore it is due to, nil if it is the context's.
func (j *joint) acquire(ctx context.Context) (status, *Semaphore) {
	if ctx.Err() != nil { // it may have ended while observers ran
		return cancelled, nil
	}
	if v, rejecter := j.enter(); v != pending {
		return v, rejecter
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

// enter takes all parts now, or joins all queues, or none if any
// semaphore rejects it.
func (j *joint) enter() (v status, rejecter *Semaphore) {
	j.lock()
	for i := range j.parts {
		if v, rejecter = j.parts[i].sem.core.rejects(j.parts[i].place.n), j.parts[i].sem; v != pending {
			j.count(v)
			j.unlock()
			return v, rejecter
		}
	}
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.enqueue(&j.parts[i].place)
		c.raiseFlags() // before looking, as in settle
	}
	v, rejecter = pending, nil
	outs, won := j.grant()
	if won {
		v = granted
	} else if rejecter = j.overLimit(); rejecter != nil && j.decide(queueFull) {
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
	return v, rejecter
}

// overLimit is a semaphore in whose queue the joint is one too many.
func (j *joint) overLimit() *Semaphore {
	for i := range j.parts {
		if c := &j.parts[i].sem.core; c.queueLimit > 0 && c.queue.n >= c.queueLimit {
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
	j.decide(granted) // no other goroutine can, without one of the mutexes
	return j.withdraw(), true
}

// nextEverywhere reports whether it is the joint's turn in every queue. In a
// LIFO queue it always is, see meetJoint.
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

// withdraw leaves all queues, with all mutexes held.
func (j *joint) withdraw() []wakes {
	outs := make([]wakes, len(j.parts))
	for i := range j.parts {
		c := &j.parts[i].sem.core
		if j.parts[i].place.status == queued {
			c.dequeue(&j.parts[i].place)
		}
		outs[i] = c.settle()
	}
	return outs
}

// check looks at a status that was received: a done context never acquires,
// and after a rejection the places in the other queues are to be left.
func (j *joint) check(ctx context.Context, v status) (status, *Semaphore) {
	if v == granted {
		if ctx.Err() != nil {
			j.returnAll()
			return cancelled, nil
		}
		return granted, nil
	}
	rejecter := j.rejecterOf(v)
	j.leaveQueues(v)
	return v, rejecter
}

// leave ends the wait because the context ended or the time is up. If a
// status was faster, a grant is returned, unless only the time is up.
func (j *joint) leave(ctx context.Context, why status) status {
	j.lock()
	won := j.decide(why)
	j.unlock()
	if won {
		j.leaveQueues(why)
		return why
	}
	switch v := <-j.token; {
	case v != granted:
		j.leaveQueues(why)
		return why
	case why == timedOut && ctx.Err() == nil:
		return granted
	}
	j.returnAll()
	return cancelled
}

// leaveQueues leaves all queues after a wait that ended with v.
func (j *joint) leaveQueues(v status) {
	j.lock()
	outs := j.withdraw()
	j.count(v)
	j.unlock()
	deliverAll(outs)
}

// returnAll returns what was granted to a caller whose context has ended.
func (j *joint) returnAll() {
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.give(j.parts[i].place.n)
		c.counted(cancelled)
	}
}

// count counts the call at all semaphores, with all mutexes held.
func (j *joint) count(v status) {
	for i := range j.parts {
		j.parts[i].sem.core.tally(v)
	}
}

// rejecterOf returns the semaphore in whose queue the joint was when it was rejected,
// but is no longer.
func (j *joint) rejecterOf(v status) *Semaphore {
	j.lock()
	defer j.unlock()
	for i := range j.parts {
		if p := &j.parts[i]; p.place.status == v {
			return p.sem
		}
	}
	return j.parts[0].sem
}

// rejects returns why n permits cannot be waited for together with others, or
// pending. To be parked is not among the choices, see ParkOversize.
func (c *core) rejects(n uint64) status {
	if v := c.phaseStatus(); v != granted {
		return v
	}
	if c.oversize(n) {
		return tooLarge
	}
	return pending
}
