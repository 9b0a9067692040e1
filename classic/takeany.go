package classic

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// TakeAny removes the first item of one of the buffers, and returns it with the index of that
// buffer. It waits while all are empty, in order of arrival with the other consumers of each.
// It starts no goroutine, and an item is returned or stays in its buffer.
//
// If several buffers have items, the choice is pseudo-random, so that none is starved. TakeAny
// fails as Take does, with ErrClosed once all buffers are closed and empty, with ErrTimeout
// after the shortest MaxWait of the buffers, and with ErrQueueFull if one of them has as many
// consumers waiting as its MaxWaiters. Without buffers, or with a nil one, it fails with
// [sema.ErrInvalid]. The index of a failure is -1.
//
// The buffer that serves it reports EventAcquired. Only failures are reported otherwise, by
// all buffers.
func TakeAny[T any](ctx context.Context, from ...*Buffer[T]) (v T, i int, err error) {
	if err := checkBuffers(ctx, from); err != nil {
		return v, -1, err
	}
	if ctx.Err() != nil {
		return v, -1, failAny(ctx, from, 0, cancelled{context.Cause(ctx)}, false)
	}
	start := from[0].nextStart(len(from))
	for k := range from {
		i := (start + k) % len(from)
		if v, ok := from[i].takeNow(); ok {
			from[i].reportTaken(ctx)
			return v, i, nil
		}
	}
	return newAny(from).wait(ctx, start)
}

func checkBuffers[T any](ctx context.Context, from []*Buffer[T]) error {
	invalid := func(detail string) error {
		return &sema.Error{Op: "take any", Err: sema.ErrInvalid, Detail: detail}
	}
	if ctx == nil {
		return invalid("nil context")
	}
	if len(from) == 0 {
		return invalid("no buffers")
	}
	for i, b := range from {
		if b == nil {
			return invalid(fmt.Sprintf("buffer %d is nil", i))
		}
	}
	return nil
}

// nextStart returns a number below n: where a TakeAny looks first. The sequence is
// pseudo-random, since callers in lockstep could starve a buffer if it were not. It is the
// same in each run, so that schedules can be replayed.
func (b *Buffer[T]) nextStart(n int) int {
	b.lock()
	b.seed = b.seed*6364136223846793005 + 1442695040888963407
	start := b.seed >> 33 % uint64(n)
	b.mu.Unlock()
	return int(start)
}

// A choice is decided once: by a buffer that serves it, by the caller that gives up, or
// because all buffers are closed.
type choice struct {
	state atomic.Int64 // the index of the buffer that serves it, or one of the following
	open  atomic.Int64 // buffers that may serve it, plus one until it is in all queues
}

const (
	undecided = -1 - iota
	givenUp
	allClosed
)

// decide sets the state, and reports whether it was undecided.
func (c *choice) decide(state int) bool { return c.state.CompareAndSwap(undecided, int64(state)) }

// closed notes that a buffer is closed and empty. It reports whether that decides the choice.
func (c *choice) closed() bool { return c.open.Add(-1) == 0 && c.decide(allClosed) }

// An anyWait is a TakeAny that waits in the queues of all its buffers. Its waiters share one
// channel, to which only the buffer that decides the choice sends.
type anyWait[T any] struct {
	choice
	from    []*Buffer[T]
	waiters []waiter[T]
	parking
}

// newAny returns a wait that is in no queue yet. It copies the argument, so that a TakeAny
// that does not wait allocates nothing.
func newAny[T any](from []*Buffer[T]) *anyWait[T] {
	a := &anyWait[T]{from: slices.Clone(from), waiters: make([]waiter[T], len(from)), parking: newParking(false)}
	a.state.Store(undecided)
	a.open.Store(int64(len(from)) + 1)
	for i := range a.waiters {
		w := &a.waiters[i]
		w.items, w.node.Of, w.choice, w.index, w.parked, w.wake = w.one[:], w, &a.choice, i, true, a.wake
	}
	return a
}

// wait joins the queues, and waits until the choice is decided.
func (a *anyWait[T]) wait(ctx context.Context, start int) (v T, i int, err error) {
	defer a.leave()
	for k := range a.from {
		i := (start + k) % len(a.from)
		if err := a.from[i].joinAny(&a.waiters[i]); err != nil && a.decide(givenUp) {
			return v, -1, failAny(ctx, a.from, i, err, false)
		}
		if a.state.Load() != undecided {
			break
		}
	}
	if a.closed() {
		return v, -1, failAny(ctx, a.from, 0, sema.ErrClosed, false)
	}
	limit, limiting := a.limit()
	if err := a.await(ctx, limit); err != nil {
		if a.decide(givenUp) {
			return v, -1, failAny(ctx, a.from, limiting, err, true)
		}
		<-a.wake // decided in the same instant
	}
	switch state := a.state.Load(); state {
	case allClosed:
		return v, -1, failAny(ctx, a.from, 0, sema.ErrClosed, true)
	default:
		a.from[state].reportTaken(ctx)
		return a.waiters[state].one[0], int(state), nil
	}
}

// joinAny adds a waiter of a choice to the queue of consumers, and serves it if there are
// items.
func (b *Buffer[T]) joinAny(w *waiter[T]) error {
	b.lock()
	s := &b.takes
	switch {
	case b.closed && b.added == b.removed:
		b.mu.Unlock()
		w.choice.closed() // it is not the last: its caller is one more
		return nil
	case b.added == b.removed && !s.mayQueue(s.queue.Len()):
		b.mu.Unlock()
		return sema.ErrQueueFull
	}
	s.queue.PushBack(&w.node)
	out := b.settleLocked()
	if w.node.In() {
		s.counts.Waited++
	}
	b.unlock(out)
	return nil
}

// leave removes the waiters from the queues in which they still are.
func (a *anyWait[T]) leave() {
	for i, b := range a.from {
		b.lock()
		b.takes.queue.Remove(&a.waiters[i].node)
		b.mu.Unlock()
	}
}

// limit returns the shortest MaxWait, 0 if there is none, and the index of its buffer.
func (a *anyWait[T]) limit() (limit time.Duration, limiting int) {
	for i, b := range a.from {
		if d := b.takes.MaxWait; d > 0 && (limit == 0 || d < limit) {
			limit, limiting = d, i
		}
	}
	return limit, limiting
}

// reportTaken reports an item that was taken without a wait.
func (b *Buffer[T]) reportTaken(ctx context.Context) {
	if b.takes.monitor != nil {
		watch := b.takes.monitor.BeginTry(ctx, 1)
		watch.Spent(&b.takes.spender, 1)
	}
}

// failAny counts and reports a failure at all buffers, and returns the error of the one that
// caused it.
func failAny[T any](ctx context.Context, from []*Buffer[T], cause int, err error, queued bool) (failed error) {
	for i, b := range from {
		s := &b.takes
		b.lock()
		s.counts.Failed(err, queued)
		b.mu.Unlock()
		watch := s.monitor.BeginTry(ctx, 1)
		if fault := s.conclude(&watch, s.op, err); i == cause {
			failed = fault
		}
	}
	return failed
}
