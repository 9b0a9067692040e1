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
// until all items are returned. If ctx ends first, the error wraps its cause and contains
// the number of permits held; the pool continues to drain. Idle items stay open until
// Close.
func (p *Pool[T]) Drain(ctx context.Context) error {
	if ctx == nil {
		return p.own.Drain(ctx) // ErrInvalid
	}
	p.reject(sema.ErrDraining)
	return p.own.Drain(ctx)
}

// Resume ends draining. A closed pool stays closed.
func (p *Pool[T]) Resume() {
	p.mu.Lock()
	if !p.closed {
		p.admitLocked()
	}
	p.mu.Unlock()
	p.own.Resume()
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
	fault := p.fault("get", sema.ErrClosed, "")
	for p.requests.n > 0 {
		p.requests.head.err = fault
		p.requests.finish(p.requests.head)
	}
	idle := p.takeIdleLocked()
	p.unlock()
	p.reject(sema.ErrClosed)
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

// An admission ends when callers that wait at a gate are rejected.
type admission struct {
	ctx    context.Context
	reject context.CancelCauseFunc
}

// admitLocked admits callers to gates, until reject.
func (p *Pool[T]) admitLocked() {
	if a := p.admits.Load(); a == nil || a.ctx.Err() != nil {
		a = new(admission)
		a.ctx, a.reject = context.WithCancelCause(context.Background())
		p.admits.Store(a)
	}
}

// reject rejects callers that wait at a gate, and those that come later.
func (p *Pool[T]) reject(why error) { p.admits.Load().reject(p.fault("get", why, "")) }

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
