package sema

import (
	"context"
	"sync/atomic"
	"time"
)

// A joint is one waiter in the queues of several semaphores. It enters all of them at
// once, with all their mutexes held. So joint waiters have the same order in every
// fair queue they share. The earliest of all waiters can therefore always proceed, and
// no cycle of waiters is possible. A joint holds nothing while it waits.
//
// It is granted only with all mutexes held, when it is next in every queue and fits
// everywhere. A semaphore rejects it under its own mutex alone. If several reject it,
// decide selects one of them; a grant excludes them all. After a rejection its entries
// in the other queues are void. Other goroutines remove those that they find while they
// serve a queue, and the owner removes the rest.
type joint struct {
	parts  []part // sorted by core.id, the lock order; each core once
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

// decide sets the result, and reports whether none was set before.
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

// acquire waits until all parts are acquired at once. It returns a rejection together
// with the semaphore that caused it, or nil if the context ended.
func (j *joint) acquire(ctx context.Context) (status, *Semaphore) {
	if ctx.Err() != nil { // ctx may have ended while observers ran
		return cancelled, nil
	}
	if v, rejecter := j.enter(); v != pending {
		return v, rejecter
	}
	limit, limiting := j.limit()
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
		return j.leave(ctx, timedOut), limiting
	}
}

// wouldWait reports whether acquire will probably have to wait, for observers.
func (j *joint) wouldWait() bool {
	j.lock()
	defer j.unlock()
	for i := range j.parts {
		c := &j.parts[i].sem.core
		if c.debt > 0 || c.mustQueueLocked() || c.free() < j.parts[i].place.n {
			return true
		}
	}
	return false
}

// limit returns the shortest MaxWait of the semaphores, and the semaphore that has it.
func (j *joint) limit() (shortest time.Duration, limiting *Semaphore) {
	for i := range j.parts {
		s := j.parts[i].sem
		if d := s.maxWait; d > 0 && (limiting == nil || d < shortest) {
			shortest, limiting = d, s
		}
	}
	return shortest, limiting
}

// enter takes all parts now, or joins all queues. It does neither if a semaphore
// rejects the joint.
func (j *joint) enter() (v status, rejecter *Semaphore) {
	j.lock()
	for i := range j.parts {
		if v, rejecter = j.parts[i].sem.core.rejectsLocked(j.parts[i].place.n), j.parts[i].sem; v != pending {
			j.countLocked(v)
			j.unlock()
			return v, rejecter
		}
	}
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.enqueueLocked(&j.parts[i].place)
		c.raiseFlagsLocked() // before serving, as in settleIntoLocked
	}
	v, rejecter = pending, nil
	outs, won := j.grantLocked()
	if won {
		v = granted
	} else if rejecter = j.overLimitLocked(); rejecter != nil && j.decide(queueFull) {
		v = queueFull
		outs = j.withdrawLocked()
		j.countLocked(v)
	}
	if v != pending { // the joint passed through the queues without waiting
		for i := range j.parts {
			j.parts[i].sem.core.counts.notWaited++
		}
	}
	j.unlock()
	deliverAll(outs)
	return v, rejecter
}

// overLimitLocked returns a semaphore whose queue limit the joint exceeds, or nil.
func (j *joint) overLimitLocked() *Semaphore {
	for i := range j.parts {
		if c := &j.parts[i].sem.core; c.queueLimit > 0 && c.queue.n >= c.queueLimit {
			return j.parts[i].sem
		}
	}
	return nil
}

// attempt grants the joint waiter if possible, and then the waiters that this unblocks.
func (j *joint) attempt() {
	j.lock()
	outs, won := j.grantLocked()
	j.unlock()
	if won {
		j.token <- granted
	}
	deliverAll(outs)
}

// grantLocked grants the joint waiter if its turn has come. All mutexes are held.
func (j *joint) grantLocked() (outs []wakes, won bool) {
	if j.decided() || !j.nextEverywhereLocked() || !j.takeEverywhereLocked() {
		return nil, false
	}
	j.decide(granted) // cannot fail: others need one of the mutexes to decide
	return j.withdrawLocked(), true
}

// nextEverywhereLocked reports whether the joint is next in every queue. In a LIFO
// queue it always is, see tryJointLocked. All mutexes are held.
func (j *joint) nextEverywhereLocked() bool {
	for i := range j.parts {
		p := &j.parts[i]
		c := &p.sem.core
		c.payDebtLocked()
		if c.debt > 0 || c.order != LIFO && c.firstServableLocked() != &p.place {
			return false
		}
	}
	return true
}

// takeEverywhereLocked takes all parts or none. All mutexes are held.
func (j *joint) takeEverywhereLocked() bool {
	for i := range j.parts {
		if !j.parts[i].sem.core.takeFlaggedLocked(j.parts[i].place.n) {
			for k := range i {
				j.parts[k].sem.core.word.Add(j.parts[k].place.n)
			}
			return false
		}
	}
	return true
}

// withdrawLocked removes the joint from all queues. All mutexes are held.
func (j *joint) withdrawLocked() []wakes {
	outs := make([]wakes, len(j.parts))
	for i := range j.parts {
		c := &j.parts[i].sem.core
		if j.parts[i].place.status == queued {
			c.dequeueLocked(&j.parts[i].place)
		}
		outs[i] = c.settleLocked()
	}
	return outs
}

// check handles a status that was received. A done context never acquires, and after
// a rejection the joint leaves the other queues.
func (j *joint) check(ctx context.Context, v status) (status, *Semaphore) {
	if v == granted {
		if ctx.Err() != nil {
			j.releaseAll()
			return cancelled, nil
		}
		return granted, nil
	}
	rejecter := j.rejecterOf(v)
	j.leaveQueues(v)
	return v, rejecter
}

// leave ends the wait because the context ended or the time limit passed. If a final
// status came first and it is a grant, the permits are returned; if only the time
// limit passed, the grant is kept.
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
	j.releaseAll()
	return cancelled
}

// leaveQueues leaves all queues after a wait that ended with v.
func (j *joint) leaveQueues(v status) {
	j.lock()
	outs := j.withdrawLocked()
	j.countLocked(v)
	j.unlock()
	deliverAll(outs)
}

// releaseAll returns the permits granted to a caller whose context has ended.
func (j *joint) releaseAll() {
	for i := range j.parts {
		c := &j.parts[i].sem.core
		c.give(j.parts[i].place.n)
		c.count(cancelled)
	}
}

// countLocked counts the call at all semaphores. All mutexes are held.
func (j *joint) countLocked(v status) {
	for i := range j.parts {
		j.parts[i].sem.core.countLocked(v)
	}
}

// rejecterOf returns the semaphore that rejected the joint with v: its entry is no
// longer queued there.
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

// rejectsLocked returns why n permits cannot be waited for together with others, or
// pending. A joint is never parked, see ParkOversize.
func (c *core) rejectsLocked(n uint64) status {
	if v := c.phaseStatusLocked(); v != granted {
		return v
	}
	if c.oversizeLocked(n) {
		return tooLarge
	}
	return pending
}
