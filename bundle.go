package sema

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A bundle is the lease of several permits that are one.
type bundle struct {
	permits []Permit
	weight  int64
	ended   chan struct{} // closed by Release
	lost    chan struct{} // set by lossOnce, nil if nothing can be lost
	once    sync.Once
}

func (b *bundle) add(p Permit) {
	if p.handle != nil {
		b.permits = append(b.permits, p)
		b.weight = addWeights(b.weight, p.weight)
	}
}

// Release gives all back, the last acquired first, also if an observer panics.
func (b *bundle) Release() {
	defer close(b.ended)
	for _, p := range b.permits {
		defer p.Release()
	}
}

// Err is the first loss among them.
func (b *bundle) Err() error {
	for _, p := range b.permits {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Lost is closed when one of them is lost.
func (b *bundle) Lost() <-chan struct{} {
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

func (b *bundle) watch(losses []<-chan struct{}) {
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

// acquireJointly adds the permits of all wants to the bundle, or none.
func (b *bundle) acquireJointly(ctx context.Context, wants []localWant) error {
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
	if watch.anybody() && j.wouldWait() {
		defer watch.queueing()()
	}
	v, culprit := j.acquire(ctx)
	if v == granted {
		watch.admitted(b)
		return nil
	}
	return watch.failed(ctx, v, culprit)
}

// A jointWatch is a joint acquire as the probes of its semaphores see it.
type jointWatch struct {
	wants    []localWant
	attempts []attempt  // zero for a semaphore without a probe
	ids      []identity // likewise
}

func watchJoint(ctx context.Context, wants []localWant) jointWatch {
	watch := jointWatch{wants, make([]attempt, len(wants)), make([]identity, len(wants))}
	for i, w := range wants {
		if p := w.sem.probe; p != nil {
			watch.attempts[i] = p.begin(w.n)
			watch.ids[i] = p.identify(ctx)
			p.auditOrder(w.sem, watch.ids[i], watch.attempts[i])
		}
	}
	return watch
}

// anybody reports whether a semaphore has a probe.
func (j jointWatch) anybody() bool {
	return slices.ContainsFunc(j.wants, func(w localWant) bool { return w.sem.probe != nil })
}

// queueing tells that the caller is about to stand in all lines, and returns
// what is to be called when it no longer does.
func (j jointWatch) queueing() (ended func()) {
	var waits []*wait
	for i, w := range j.wants {
		if p := w.sem.probe; p != nil {
			p.queueing(w.sem, j.attempts[i])
			if j.attempts[i].record {
				waits = append(waits, books.startWait(w.sem, j.attempts[i], j.ids[i]))
			}
		}
	}
	return func() {
		for _, w := range waits {
			books.endWait(w)
			contention.add(w.stack, time.Since(w.since), w.sem.probe.sampleWeight())
		}
	}
}

// admitted makes the permits. If an observer panics half-way, what has no
// permit yet is given back here, and the rest by who holds the bundle.
func (j jointWatch) admitted(b *bundle) {
	made := 0
	defer func() {
		for _, w := range j.wants[made:] {
			w.sem.core.give(uint64(w.n))
		}
	}()
	for i, w := range j.wants {
		made++
		if w.sem.probe == nil {
			b.add(w.sem.permit(w.n))
			continue
		}
		a := j.attempts[i]
		b.add(w.sem.admitted(a, j.ids[i], Event{Weight: w.n, Wait: time.Since(a.start), Site: a.stack.site()}))
	}
}

// failed tells all of it and is the error.
func (j jointWatch) failed(ctx context.Context, v verdict, culprit *Semaphore) error {
	e := Event{Kind: Rejected}
	weight := int64(0)
	for _, w := range j.wants {
		if w.sem == culprit {
			weight = w.n
		}
	}
	switch v {
	case cancelled:
		e.Kind, e.Err = Cancelled, context.Cause(ctx)
	case timedOut:
		e.Kind, e.Err = TimedOut, culprit.refusal("acquire all", weight, v)
	default:
		e.Err = culprit.refusal("acquire all", weight, v)
	}
	for i, w := range j.wants {
		if p := w.sem.probe; p != nil {
			e.Weight, e.Wait, e.Site = w.n, time.Since(j.attempts[i].start), j.attempts[i].stack.site()
			p.tell(w.sem, e)
			p.edge(w.sem)
		}
	}
	return e.Err
}
