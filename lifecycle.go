package sema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// Resize changes the capacity, up or down, at any time. Growing serves waiters at
// once. Shrinking revokes nothing: permits held beyond the new capacity are a debt
// that releases pay before the queue is served again. Waiters that no longer fit get
// ErrTooLarge, unless [ParkOversize] is set. Resize(0) pauses the semaphore: all
// callers wait. Resize panics if capacity is negative.
func (s *Semaphore) Resize(capacity int64) {
	s.mustBeNew("Resize")
	n := checkCapacity("Resize", s.name, capacity)
	s.core.mu.Lock()
	s.core.unlock(s.core.setCapacityLocked(n))
	s.monitor.resized(s.Stats().Capacity)
}

// Forget ends p without a release and reduces the capacity by its weight. The capacity
// may become 0, which pauses the semaphore. Use Forget when the resource behind p no
// longer exists. Forget ignores an inert permit. It panics on a permit of another
// semaphore, which stays held.
func (s *Semaphore) Forget(p Permit) {
	h := p.handle
	if !p.Held() {
		return
	}
	if p.issuer() != &s.issuer {
		panic(fmt.Sprintf("sema: %q: Forget of a permit of another semaphore, which is still held", s.name))
	}
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		return
	}
	if h.kind == recordedHandle {
		h.rec.end()
		runtime.KeepAlive(h)
	}
	s.core.mu.Lock()
	s.core.unlock(s.core.forgetLocked(uint64(p.weight)))
	s.monitor.resized(s.Stats().Capacity)
}

// Drain rejects all callers, queued ones included, with ErrDraining, and waits until
// all permits are released. If ctx ends first, the error wraps its cause and contains
// the number of permits held; the semaphore continues to drain. If Resume is called,
// Drain returns early with an error.
func (s *Semaphore) Drain(ctx context.Context) error {
	const op = "drain"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	s.mustBeNew(op)
	s.core.lock()
	out, resumed := s.core.drainLocked()
	s.core.unlock(out)
	s.monitor.Report(Event{Kind: EventDrained})
	return s.core.waitIdle(ctx, &s.core, op, s.name, resumed)
}

// Resume ends draining. A closed semaphore stays closed.
func (s *Semaphore) Resume() {
	s.core.lock()
	s.core.unlock(s.core.resumeLocked())
}

// WaitIdle waits until no permit is held. Callers may continue to acquire. If ctx ends
// first, the error wraps its cause and contains the number of permits held.
func (s *Semaphore) WaitIdle(ctx context.Context) error {
	const op = "wait until idle"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	return s.core.waitIdle(ctx, &s.core, op, s.name, nil)
}

// Close rejects all callers, queued ones included, with ErrClosed, for good. Permits
// that are held can still be released. Close always returns nil.
func (s *Semaphore) Close() error {
	s.mustBeNew("Close")
	s.core.mu.Lock()
	first := s.core.phase != shut
	s.core.unlock(s.core.rejectAllLocked(shut))
	if first {
		s.monitor.Report(Event{Kind: EventClosed})
	}
	return nil
}

// drainLocked starts draining. resumeLocked closes the returned channel. If the core is
// closed, the channel is never ready: it is nil, or stays open.
func (c *core) drainLocked() (wakes, <-chan struct{}) {
	out := c.rejectAllLocked(draining)
	if c.phase == draining && c.resumed == nil {
		c.resumed = make(chan struct{})
	}
	return out, c.resumed
}

// resumeLocked ends draining.
func (c *core) resumeLocked() wakes {
	if c.phase == draining {
		c.phase = open
		close(c.resumed)
		c.resumed = nil
	}
	return c.settleLocked()
}

var errResumed = errors.New("resumed before all permits were released")

// A section is a critical section of a core. A Semaphore uses the core's own. The
// section of a Striped gathers all free permits in the core.
type section interface {
	lock()
	unlock(wakes)
}

// waitIdle waits until nothing is in use, ctx ends or resumed is closed.
func (c *core) waitIdle(ctx context.Context, under section, op, name string, resumed <-chan struct{}) error {
	idle := make(chan struct{})
	under.lock()
	c.idleWaiters = append(c.idleWaiters, idle)
	under.unlock(c.settleLocked())
	var why error
	advice := ""
	select {
	case <-idle:
		return nil
	case <-resumed:
		why = errResumed
	case <-ctx.Done():
		why = context.Cause(ctx)
		advice = cmp.Or(Hint(why), "wait again, or find the holders with SEMA_DEBUG=full")
	}
	under.lock()
	c.idleWaiters = slices.DeleteFunc(c.idleWaiters, func(i chan struct{}) bool { return i == idle })
	left, capacity := c.inUseLocked(), c.capacity
	under.unlock(c.settleLocked())
	if left == 0 {
		return nil // it became idle at the same moment
	}
	return &Error{Op: op, Name: name, InUse: int64(left), Err: why, Detail: fmt.Sprintf("%d of %d permits are still held", left, capacity),
		Advice: advice}
}
