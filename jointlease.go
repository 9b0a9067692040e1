package sema

import (
	"context"
	"slices"
	"sync"
)

// A jointLease is the lease of several permits that are one.
type jointLease struct {
	permits []Permit
	weight  int64
	ended   chan struct{} // closed by Release
	lost    chan struct{} // set by lossOnce, nil if nothing can be lost
	once    sync.Once
}

func (b *jointLease) add(p Permit) {
	if p.handle != nil {
		b.permits = append(b.permits, p)
		b.weight = addWeights(b.weight, p.weight)
	}
}

// Release releases all, the last acquired first, also if an observer panics.
func (b *jointLease) Release() {
	defer close(b.ended)
	for _, p := range b.permits {
		defer p.Release()
	}
}

// Err is the first loss among them.
func (b *jointLease) Err() error {
	for _, p := range b.permits {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Lost is closed when one of them is lost.
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
	var some []localWant
	for _, w := range wants {
		w.sem.mustBeNew("acquire all")
		if w.n > 0 && w.n <= MaxCapacity {
			some = append(some, w)
		} else if _, err := w.sem.unusual(ctx, "acquire all", w.n); err != nil { //semavet:ignore it is inert: none is had of such a weight
			return err
		}
	}
	if len(some) == 0 {
		return nil
	}
	watch := watchJoint(ctx, some)
	j := newJoint(some)
	if watch.observed() && j.wouldWait() {
		defer watch.ended()
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

// observed reports whether one of the semaphores is.
func (j jointWatch) observed() bool {
	return slices.ContainsFunc(j.wants, func(w localWant) bool { return w.sem.monitor != nil })
}

// queued reports that the caller is about to join all queues.
func (j jointWatch) queued() {
	for i := range j.waits {
		j.waits[i].Queued()
	}
}

// ended takes the caller off the lists of waits, also if an observer panicked.
func (j jointWatch) ended() {
	for i := range j.waits {
		j.waits[i].ended()
	}
}

// granted issues the permits. If an observer panics half-way, what has no permit
// yet is returned here, and the rest by the holder of the joint lease.
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

// failed reports the error to all and returns it.
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
