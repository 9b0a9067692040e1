package pool

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
)

// find waits for an item, for a caller that holds a permit.
func (p *Pool[T]) find(ctx context.Context) (*slot[T], error) {
	r := &request[T]{ctx: context.WithoutCancel(ctx), ended: make(chan struct{}, 1)}
	p.lock()
	if admits := p.admits.Load().ctx; admits.Err() != nil { // since the permit was granted
		p.unlock()
		return nil, context.Cause(admits)
	}
	p.requests.push(r)
	p.serveLocked()
	p.unlock()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // also if the wait has ended in the same instant
		p.leave(r)
		if r.panicked == nil {
			return nil, context.Cause(ctx)
		}
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.slot, r.err
}

// leave ends a request whose context has ended. An item that it got meanwhile goes to the
// next one.
func (p *Pool[T]) leave(r *request[T]) {
	p.lock()
	if r.node.In() {
		p.requests.remove(r)
	}
	s := r.slot
	retire := s != nil && !p.availableLocked(s, nil)
	p.unlock()
	if retire {
		p.closeSlot(s)
	}
}

// tryFind returns an idle item that is available at once. Otherwise it starts a Check, or
// an Open if none is in progress, and fails with ErrFull.
func (p *Pool[T]) tryFind(ctx context.Context) (*slot[T], error) {
	p.lock()
	if admits := p.admits.Load().ctx; admits.Err() != nil {
		p.unlock()
		return nil, context.Cause(admits)
	}
	why := "no item is idle"
	background := &work[T]{ctx: context.WithoutCancel(ctx)}
	s := p.topLocked()
	switch {
	case s != nil && p.fresh(s): // if requests waited, they would have it
		p.popLocked()
	case s != nil:
		p.popLocked()
		p.startCheckLocked(background, s)
		s, why = nil, "the idle item is being checked"
	case p.counts.opening == 0 && p.mayOpenLocked():
		p.startOpenLocked(background)
	}
	if s == nil && p.counts.opening > 0 {
		why += ": one is being opened"
	}
	p.unlock()
	if s == nil {
		return nil, p.fault("try", sema.ErrFull, why)
	}
	return s, nil
}

// serveLocked gives idle items to requests. For requests that remain it starts Checks of
// idle items, and then Opens, as many as are allowed.
func (p *Pool[T]) serveLocked() {
	for p.requests.Len() > 0 {
		s := p.topLocked()
		switch {
		case s != nil && p.fresh(s):
			p.popLocked()
			p.requests.give(s, nil)
		case p.requests.working == p.requests.Len():
			return // each has an Open or a Check in progress
		case s != nil:
			p.popLocked()
			p.startCheckLocked(p.requests.newWork(), s)
		case p.mayOpenLocked():
			p.startOpenLocked(p.requests.newWork())
		default:
			return
		}
	}
}

// mayOpenLocked reports whether one more item may be opened for a caller that holds a
// permit, while no item is idle.
//
// A request that may not open does not wait in vain. If the open items were all in use or
// kept, each would have a permit, and that of the request would be one too many. So one of
// them is being opened, checked or closed, and the end of that serves requests. If none
// is, more permits are held than Size, and valid, because Size was reduced; or the permit
// of an item was returned without the item, by a direct Release or by ReclaimLeaks. Then
// it is better to exceed Size than to wait for ever.
func (p *Pool[T]) mayOpenLocked() bool {
	c := &p.counts
	if p.closed || p.conf.MaxOpening > 0 && c.opening >= int64(p.conf.MaxOpening) || c.open >= maxSlots {
		return false
	}
	return c.open < p.size || c.opening+c.checking+c.closing == 0
}

// startOpenLocked opens an item in the background.
func (p *Pool[T]) startOpenLocked(w *work[T]) {
	s := p.newSlotLocked()
	p.counts.opening++
	p.startJanitorLocked()
	go p.open(w, s)
}

// open opens an item and makes it available.
func (p *Pool[T]) open(w *work[T], s *slot[T]) {
	ctx, cancel := p.limit(w.ctx)
	var v T
	defer func() {
		cancel()
		w.end(recover())
		p.opened(s, v, w)
	}()
	v, w.err = p.conf.Open(ctx)
	w.returned = true
}

func (p *Pool[T]) opened(s *slot[T], v T, w *work[T]) {
	p.lock()
	p.counts.opening--
	if w.err == nil {
		p.counts.Opens++
		p.failures, p.fillAfter = 0, 0
		s.box.Store(&v)
		if p.conf.MaxLifetime > 0 {
			s.expires.CompareAndSwap(never, p.expiryLocked()) // 0 after a Reset
		}
		retire := !p.availableLocked(s, w)
		p.fillLocked()
		p.unlock()
		if retire {
			p.closeSlot(s)
		}
		return
	}
	p.counts.OpenErrors++
	p.freeLocked(s)
	p.backOffLocked()
	passed := p.failLocked(w)
	p.serveLocked()
	p.unlock()
	w.rethrow(passed)
}

// failLocked passes the error of an Open to the request for which it ran, if that still
// waits. A panic is passed to any request. It reports false if there is none.
func (p *Pool[T]) failLocked(w *work[T]) bool {
	r := w.request
	if r == nil && w.panicked != nil {
		r = p.requests.first()
	}
	if r == nil {
		return false
	}
	if r.panicked = w.panicked; r.panicked == nil {
		r.err = p.openFault("open", w.err)
	}
	p.requests.finish(r)
	return true
}

func (p *Pool[T]) openFault(op string, err error) error {
	fault := p.fault(op, &openError{err}, fmt.Sprintf("%d of %d items open", p.counts.open, p.size))
	fault.Advice = "check that what Open connects to runs and can be reached"
	return fault
}

// An openError is an error of Open.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

// Reason returns the word for [sema.Reason].
func (e *openError) Reason() string { return "open" }

// startCheckLocked checks an item in the background. It is not on the stack.
func (p *Pool[T]) startCheckLocked(w *work[T], s *slot[T]) {
	p.counts.checking++
	go p.check(w, s)
}

// check checks an item and makes it available, or closes it if it is broken. A request
// then gets another one.
func (p *Pool[T]) check(w *work[T], s *slot[T]) {
	ctx, cancel := p.limit(w.ctx)
	defer func() {
		cancel()
		w.end(recover())
		p.checked(s, w)
	}()
	w.err = p.conf.Check(ctx, *s.box.Load())
	w.returned = true
}

func (p *Pool[T]) checked(s *slot[T], w *work[T]) {
	passed, retire := true, true
	p.lock()
	p.counts.checking--
	p.counts.Checks++
	if w.err == nil {
		retire = !p.availableLocked(s, w)
	} else {
		p.counts.CheckErrors++
		p.counts.closing++
		if w.panicked != nil {
			passed = p.failLocked(w)
		}
		p.requests.drop(w)
		p.serveLocked()
	}
	p.unlock()
	defer w.rethrow(passed)
	if retire {
		p.closeSlot(s)
	}
}

// limit returns the context of a call of Open or Check.
func (p *Pool[T]) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := p.conf.OpenTimeout; d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return ctx, func() {}
}
