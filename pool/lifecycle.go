package pool

import (
	"context"

	"github.com/sema-go/sema"
)

// Resize changes Size, up or down, at any time. Growing serves waiters at once. Shrinking
// revokes nothing: surplus items are closed, those that are idle before Resize returns,
// and others when they are returned. Resize(0) pauses the pool: all callers wait. Resize
// panics if size is negative.
func (p *Pool[T]) Resize(size int64) {
	p.own.Resize(size)
	p.lock()
	p.size = p.own.Stats().Capacity // that of the last of concurrent Resizes
	surplus := p.counts.open - p.counts.closing - p.size
	keep := int64(p.idleLocked()) - max(0, surplus)
	closed := p.removeLocked(func(above int, _ *slot[T]) bool { return int64(above) >= keep })
	p.counts.closing += int64(len(closed))
	p.serveLocked()
	p.unlock()
	p.closeAll(closed)
}

// Reset closes all items: those that are idle before it returns, and others when they are
// returned, or when they have been opened. Use it after a failover, or when credentials
// have changed. Callers notice nothing: they get new items.
func (p *Pool[T]) Reset() {
	p.lock()
	for _, s := range *p.table.Load() {
		s.expires.Store(0)
	}
	closed := p.takeIdleLocked()
	p.serveLocked()
	p.unlock()
	p.closeAll(closed)
}

// Drain rejects all callers, waiting ones included, with [sema.ErrDraining], and waits
// until all items are returned. It does not wait for an Open in progress, whose item becomes
// idle. If ctx ends first, the error wraps its cause and contains
// the number of permits held; the pool continues to drain. Idle items stay open until
// Close.
func (p *Pool[T]) Drain(ctx context.Context) error {
	if ctx == nil {
		return p.own.Drain(ctx) // ErrInvalid
	}
	p.lock()
	if !p.closed {
		p.rejectLocked(sema.ErrDraining)
	}
	p.unlock()
	return p.own.Drain(ctx)
}

// Resume ends draining. A closed pool stays closed.
func (p *Pool[T]) Resume() {
	// The semaphore comes first: a Drain at the same time may leave the pool draining, but
	// never with a semaphore that was resumed and callers that are rejected all the same.
	p.own.Resume()
	p.lock()
	if !p.closed && p.admits.Load().ctx.Err() != nil {
		p.admits.Store(newAdmission())
	}
	p.unlock()
}

// Close rejects all callers, waiting ones included, with [sema.ErrClosed], for good. It
// closes the idle items before it returns. Items that are in use are closed when they are
// returned: call Drain to wait for them. Close always returns nil.
func (p *Pool[T]) Close() error {
	p.own.Close()
	p.lock()
	if p.closed {
		p.unlock()
		return nil
	}
	p.closed = true
	close(p.stopJanitor)
	p.rejectLocked(sema.ErrClosed)
	idle := p.takeIdleLocked()
	p.unlock()
	p.closeAll(idle)
	return nil
}

// takeIdleLocked removes all idle items, which the caller must close after it has unlocked
// mu.
func (p *Pool[T]) takeIdleLocked() []*slot[T] {
	idle := p.removeLocked(func(int, *slot[T]) bool { return true })
	p.counts.closing += int64(len(idle))
	return idle
}

// An admission ends when the pool rejects callers: then the cause of its context is why.
type admission struct {
	ctx    context.Context
	reject context.CancelCauseFunc
}

func newAdmission() *admission {
	a := new(admission)
	a.ctx, a.reject = context.WithCancelCause(context.Background())
	return a
}

// rejectLocked rejects callers that wait at a gate or for an item, and those that come
// later.
func (p *Pool[T]) rejectLocked(why error) {
	fault := p.fault("get", why, "")
	ended := newAdmission()
	ended.reject(fault)
	p.admits.Swap(ended).reject(fault) // has no effect if that ended earlier, for another reason
	for r := range p.requests.All {
		r.err = fault
		p.requests.finish(r)
	}
}

// passGate acquires n permits of a gate that is not the pool's own. It fails at once when
// the pool is drained or closed, which ends no wait at such a gate.
func (p *Pool[T]) passGate(ctx context.Context, op string, gate sema.Gate, n int64, try bool) (sema.Permit, error) {
	switch {
	case ctx == nil:
		return sema.Permit{}, p.fault(op, sema.ErrInvalid, "nil context")
	case gate == nil:
		return sema.Permit{}, p.fault(op, sema.ErrInvalid, "nil gate")
	case n < 1:
		return sema.Permit{}, p.fault(op, sema.ErrInvalid, "the weight is not positive")
	case ctx.Err() != nil:
		return sema.Permit{}, context.Cause(ctx)
	}
	admits := p.admits.Load().ctx
	if admits.Err() != nil {
		return sema.Permit{}, context.Cause(admits)
	}
	if try {
		return gate.TryAcquire(ctx, n)
	}
	wait := &gateContext{Context: ctx, admits: admits}
	defer wait.stop()
	permit, err := gate.Acquire(wait, n)
	if err != nil && ctx.Err() == nil && admits.Err() != nil {
		err = context.Cause(admits)
	}
	return permit, err
}
