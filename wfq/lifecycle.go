package wfq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sema-go/sema"
)

// Resize changes the capacity, as [sema.Semaphore.Resize] does: growing serves waiters at
// once, and shrinking revokes nothing. Waiters that no longer fit fail with
// [sema.ErrTooLarge]. Resize(0) pauses the queue. It panics if capacity is negative.
func (q *Queue) Resize(capacity int64) {
	capacity = checkCapacity("Resize", capacity)
	q.lock()
	q.free += capacity - q.capacity
	q.capacity = capacity
	q.rejectTooLargeLocked()
	q.unlock()
	q.monitor.Report(sema.Event{Kind: sema.EventResized, Capacity: capacity})
}

// rejectTooLargeLocked ends the waits that can never be served.
func (q *Queue) rejectTooLargeLocked() { q.rejectWhereLocked(sema.ErrTooLarge, q.tooLargeLocked) }

// rejectTooLargeLocked ends the waits of the class that can never be served.
func (c *class) rejectTooLargeLocked() {
	c.rejectWhereLocked(sema.ErrTooLarge, c.q.tooLargeLocked)
}

// tooLargeLocked reports whether w can never be served. While the queue is paused, nothing
// exceeds its capacity.
func (q *Queue) tooLargeLocked(w *waiter) bool {
	return w.n > w.class.limit.Load() || w.n > q.capacity && q.capacity > 0
}

// Drain rejects waiters and new acquires with [sema.ErrDraining], and waits until all
// permits are released. If ctx ends first, the error wraps its cause and contains the
// number of permits held; the queue continues to drain. If Resume is called, Drain returns
// early with an error.
func (q *Queue) Drain(ctx context.Context) error {
	const op = "drain"
	if ctx == nil {
		return q.fault(op, sema.ErrInvalid, "nil context")
	}
	q.lock()
	if q.phase == open {
		q.phase = draining
		q.resumed = make(chan struct{})
	}
	q.rejectAtGateLocked()
	resumed := q.resumed
	q.rejectWhereLocked(sema.ErrDraining, func(*waiter) bool { return true })
	q.unlock()
	q.monitor.Report(sema.Event{Kind: sema.EventDrained})
	return q.waitIdle(ctx, op, resumed)
}

// Resume ends a drain. A closed queue stays closed.
func (q *Queue) Resume() {
	q.lock()
	defer q.unlock()
	if q.phase == draining {
		q.phase = open
		close(q.resumed)
		q.resumed = nil
		if q.under != nil {
			q.admits = newAdmission()
		}
	}
}

// rejectAtGateLocked ends the waits at the gate behind the queue.
func (q *Queue) rejectAtGateLocked() {
	if q.under != nil {
		q.admits.reject()
	}
}

// Close rejects waiters and new acquires with [sema.ErrClosed], for good. Permits that are
// held can still be released. It always returns nil.
func (q *Queue) Close() error {
	q.lock()
	first := q.phase != closed
	q.phase = closed
	q.rejectAtGateLocked()
	q.rejectWhereLocked(sema.ErrClosed, func(*waiter) bool { return true })
	q.unlock()
	if first {
		q.monitor.Report(sema.Event{Kind: sema.EventClosed})
	}
	return nil
}

// WaitIdle waits until no permit is held. Callers may continue to acquire. If ctx ends
// first, the error wraps its cause and contains the number of permits held.
func (q *Queue) WaitIdle(ctx context.Context) error {
	const op = "wait until idle"
	if ctx == nil {
		return q.fault(op, sema.ErrInvalid, "nil context")
	}
	return q.waitIdle(ctx, op, nil)
}

var errResumed = errors.New("resumed before all permits were released")

// waitIdle waits until nothing is in use, ctx ends or resumed is closed.
func (q *Queue) waitIdle(ctx context.Context, op string, resumed <-chan struct{}) error {
	idle := make(chan struct{})
	q.lock()
	q.idle = append(q.idle, idle)
	q.unlock()
	var why error
	advice := ""
	select {
	case <-idle:
		return nil
	case <-resumed:
		why = errResumed
	case <-ctx.Done():
		why = context.Cause(ctx)
		advice = cmp.Or(sema.Hint(why), "wait again, or find the holders with SEMA_DEBUG=full")
	}
	q.lock()
	q.idle = slices.DeleteFunc(q.idle, func(c chan struct{}) bool { return c == idle })
	left, capacity := q.capacity-q.free, q.capacity
	q.unlock()
	if left == 0 {
		return nil // it became idle at the same moment
	}
	fault := q.fault(op, why, fmt.Sprintf("%d of %d permits are still held", left, capacity))
	fault.Advice = advice
	return fault
}

func (q *Queue) fault(op string, err error, detail string) *sema.Error {
	return &sema.Error{Op: op, Name: q.settings.Name, InUse: q.Stats().InUse, Err: err, Detail: detail}
}
