package sema

import (
	"context"
	"slices"
	"sync"
)

// A jointLease is the [Lease] behind one permit that stands for several.
type jointLease struct {
	permits []Permit
	weight  int64
	ended   chan struct{} // closed by Release
	lost    chan struct{} // set by once; nil: no permit can be lost
	once    sync.Once
}

func (b *jointLease) add(p Permit) {
	if p.handle != nil {
		b.permits = append(b.permits, p)
		b.weight = addWeights(b.weight, p.weight)
	}
}

// Release releases all permits, the last acquired first, even if an observer panics.
func (b *jointLease) Release() {
	defer close(b.ended)
	for _, p := range b.permits {
		defer p.Release()
	}
}

// Err returns the first loss among the permits, or nil.
func (b *jointLease) Err() error {
	for _, p := range b.permits {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Lost returns a channel that is closed when one of the permits is lost.
func (b *jointLease) Lost() <-chan struct{} {
	b.once.Do(func() {
		var losses []<-chan struct{}
		for _, p := range b.permits {
			if l := p.Lost(); l != nil {
				losses = append(losses, l)
			}
		}
		if len(losses) > 0 {
			b.lost = make(chan struct{})
			b.watch(losses)
		}
	})
	return b.lost
}

func (b *jointLease) watch(losses []<-chan struct{}) {
	var first sync.Once
	for _, l := range losses {
		go func() {
			select {
			case <-l:
				first.Do(func() { close(b.lost) })
			case <-b.ended:
			}
		}()
	}
}

// acquireJointly adds the permits of all wants to the lease, or none.
func (b *jointLease) acquireJointly(ctx context.Context, wants []localWant) error {
	if len(wants) == 1 {
		p, err := wants[0].sem.Acquire(ctx, wants[0].n)
		b.add(p)
		return err
	}
	var positive []localWant
	for _, w := range wants {
		w.sem.mustBeNew("acquire all")
		if w.n > 0 && w.n <= MaxCapacity {
			positive = append(positive, w)
		} else if _, err := w.sem.acquireTrivial(ctx, "acquire all", w.n); err != nil { //semavet:ignore the permit is inert: its weight is 0
			return err
		}
	}
	if len(positive) == 0 {
		return nil
	}
	watch := watchJoint(ctx, positive)
	j := newJoint(positive)
	if watch.observed() && j.wouldWait() {
		defer watch.endWait()
		watch.queued()
	}
	v, rejecter := j.acquire(ctx)
	if v == granted {
		watch.granted(b)
		return nil
	}
	return watch.failed(ctx, v, rejecter)
}

// A jointWatch is a joint acquire under observation.
type jointWatch struct {
	wants []localWant
	waits []Wait
}

func watchJoint(ctx context.Context, wants []localWant) jointWatch {
	watch := jointWatch{wants, make([]Wait, len(wants))}
	for i, w := range wants {
		watch.waits[i] = w.sem.monitor.Begin(ctx, w.n)
	}
	return watch
}

// observed reports whether one of the semaphores is observed.
func (j jointWatch) observed() bool {
	return slices.ContainsFunc(j.wants, func(w localWant) bool { return w.sem.monitor != nil })
}

// queued reports that the caller is about to join all queues.
func (j jointWatch) queued() {
	for i := range j.waits {
		j.waits[i].Queued()
	}
}

// endWait removes the caller from the lists of waits, even if an observer panicked.
func (j jointWatch) endWait() {
	for i := range j.waits {
		j.waits[i].endWait()
	}
}

// granted issues the permits. If an observer panics, granted releases the weights that
// have no permit yet, and the holder of the joint lease releases the permits issued.
func (j jointWatch) granted(b *jointLease) {
	issued := 0
	defer func() {
		for _, w := range j.wants[issued:] {
			w.sem.core.give(uint64(w.n))
		}
	}()
	for i, w := range j.wants {
		issued++
		b.add(j.waits[i].Granted(&w.sem.issuer))
	}
}

// failed reports the error to all monitors and returns it.
func (j jointWatch) failed(ctx context.Context, v status, rejecter *Semaphore) error {
	err := context.Cause(ctx)
	if v != cancelled {
		i := slices.IndexFunc(j.wants, func(w localWant) bool { return w.sem == rejecter })
		err = rejecter.rejection("acquire all", j.wants[i].n, v)
	}
	for i := range j.waits {
		j.waits[i].Failed(err)
	}
	return err
}
