package sema

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// Resize changes the capacity, up or down, at any time. Growing serves waiters
// at once. Shrinking revokes nothing: permits held beyond the new capacity are
// a debt that releases pay before the queue is served again. Waiters that no
// longer fit get ErrTooLarge (unless [ParkOversize]). Resize(0) pauses: all
// wait. It panics on a negative capacity.
func (s *Semaphore) Resize(capacity int64) {
	s.mustBeNew("Resize")
	n := checkCapacity("Resize", s.name, capacity)
	s.core.mu.Lock()
	s.core.unlock(s.core.setCapacity(n))
	s.monitor.resized(s.Stats().Capacity)
}

// Forget gives p up for good: it is not released, and the capacity shrinks by
// its weight: to 0, which means paused, if it was the last. Use it when what
// the permit stands for is gone. An inert permit is ignored; one of another
// semaphore panics and is not touched.
func (s *Semaphore) Forget(p Permit) {
	h := p.handle
	if !p.Held() {
		return
	}
	if p.issuer() != &s.issuer {
		panic(fmt.Sprintf("sema: %q: Forget of a permit that is not this semaphore's; it is still held", s.name))
	}
	if !h.gen.CompareAndSwap(p.gen, p.gen+1) {
		return
	}
	if h.kind == recordedHandle {
		h.rec.end()
		runtime.KeepAlive(h)
	}
	s.core.mu.Lock()
	s.core.unlock(s.core.forget(uint64(p.weight)))
	s.monitor.resized(s.Stats().Capacity)
}

// Drain rejects all callers, queued ones included, with ErrDraining, and waits
// until all permits are released. If ctx ends first the error is its cause and
// says how many are held; the semaphore goes on draining. Drain returns early,
// with an error, if Resume is called.
func (s *Semaphore) Drain(ctx context.Context) error {
	const op = "drain"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	s.mustBeNew(op)
	c := &s.core
	c.mu.Lock()
	out := c.rejectAll(draining)
	if c.phase == draining && c.resumed == nil {
		c.resumed = make(chan struct{})
	}
	resumed := c.resumed // nil, and never ready, if closed
	c.unlock(out)
	s.monitor.Report(Event{Kind: EventDrained})
	return s.waitIdle(ctx, op, resumed)
}

// Resume ends draining. A closed semaphore stays closed.
func (s *Semaphore) Resume() {
	c := &s.core
	c.mu.Lock()
	if c.phase == draining {
		c.phase = open
		close(c.resumed)
		c.resumed = nil
	}
	c.unlock(c.settle())
}

// WaitIdle waits until no permit is held, while callers may go on acquiring. If ctx
// ends first the error is its cause and says how many are held.
func (s *Semaphore) WaitIdle(ctx context.Context) error {
	const op = "wait until idle"
	if ctx == nil {
		return s.fault(op, 0, ErrInvalid, nilContext)
	}
	return s.waitIdle(ctx, op, nil)
}

var errResumed = errors.New("resumed before all permits were released")

func (s *Semaphore) waitIdle(ctx context.Context, op string, resumed <-chan struct{}) error {
	c := &s.core
	idle := make(chan struct{})
	c.mu.Lock()
	c.idlers = append(c.idlers, idle)
	c.unlock(c.settle())
	var why error
	select {
	case <-idle:
		return nil
	case <-resumed:
		why = errResumed
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	c.mu.Lock()
	c.idlers = slices.DeleteFunc(c.idlers, func(i chan struct{}) bool { return i == idle })
	left, capacity := c.inUse(), c.capacity
	c.unlock(c.settle())
	if left == 0 {
		return nil // it became idle in the same moment
	}
	return &Error{Op: op, Name: s.name, InUse: int64(left), Err: why, Detail: fmt.Sprintf("%d of %d permits are still held", left, capacity)}
}

// Close rejects all callers, queued ones included, with ErrClosed, for good.
// Permits that are out can still be released. It always returns nil.
func (s *Semaphore) Close() error {
	s.mustBeNew("Close")
	s.core.mu.Lock()
	first := s.core.phase != shut
	s.core.unlock(s.core.rejectAll(shut))
	if first {
		s.monitor.Report(Event{Kind: EventClosed})
	}
	return nil
}
