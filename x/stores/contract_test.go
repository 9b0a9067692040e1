package stores_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// TestContract_IsTheSameAtEveryScope runs one program over semaphores of a process, of a
// host and of a fleet over every store. It compares what the program observes, errors
// included: the constructor changes, the code does not.
func TestContract_IsTheSameAtEveryScope(t *testing.T) {
	t.Parallel()
	want := observe(t, scope{"process", openProcess})
	for _, s := range scopes(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got := observe(t, s)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Errorf("observed\n\t%s\nwant, as in a process,\n\t%s", at(got, i), at(want, i))
				}
			}
		})
	}
}

// An observer records what the program sees.
type observer struct {
	t     *testing.T
	scope scope
	seen  []string
}

// observe runs the program and returns what it saw, line by line.
func observe(t *testing.T, s scope) []string {
	t.Helper()
	o := &observer{t: t, scope: s}
	o.arguments()
	o.permits()
	o.order()
	o.bounds()
	o.resizes()
	o.drains()
	o.closes()
	return o.seen
}

func (o *observer) note(format string, args ...any) {
	o.seen = append(o.seen, fmt.Sprintf(format, args...))
}

func (o *observer) open(name string, capacity int64, opts ...sema.SharedOption) semaphore {
	o.t.Helper()
	return o.scope.open(o.t, strings.ReplaceAll(fmt.Sprintf("%s-%x", name, time.Now().UnixNano()), " ", "-"), capacity, opts...)
}

// describe returns the result of an acquire: the permit, or the sentinel, the reason, the
// facts, and whether there is advice.
func (o *observer) describe(s semaphore, p sema.Permit, err error) string {
	if err == nil {
		return fmt.Sprintf("permit of %d, held: %t", p.Weight(), p.Held())
	}
	var sentinel error
	for _, one := range []error{
		sema.ErrFull, sema.ErrQueueFull, sema.ErrTooLarge, sema.ErrTimeout, sema.ErrDraining, sema.ErrClosed, sema.ErrInvalid, sema.ErrUnavailable,
		context.Canceled, context.DeadlineExceeded, errGivenUp,
	} {
		if errors.Is(err, one) {
			sentinel = one
			break
		}
	}
	text := fmt.Sprintf("%v (%s)", sentinel, sema.Reason(err))
	var facts *sema.Error
	if errors.As(err, &facts) {
		text += fmt.Sprintf(", names the semaphore: %t, weight %d of %d, advice: %t, advice apart from facts: %t",
			facts.Name == s.name() && strings.Contains(err.Error(), s.name()), facts.Weight, facts.Capacity,
			sema.Hint(err) != "", sema.Hint(err) == "" || !strings.Contains(err.Error(), sema.Hint(err)))
	}
	return text
}

func (o *observer) acquire(s semaphore, what string, ctx context.Context, n int64) sema.Permit {
	p, err := s.Acquire(ctx, n)
	o.note("acquire %d, %s: %s", n, what, o.describe(s, p, err))
	return p
}

func (o *observer) try(s semaphore, what string, ctx context.Context, n int64) sema.Permit {
	p, err := s.TryAcquire(ctx, n)
	o.note("try %d, %s: %s", n, what, o.describe(s, p, err))
	return p
}

// A wait is an acquire in another goroutine.
type wait struct {
	permit sema.Permit
	err    error
	done   chan struct{}
}

// queue starts an acquire and returns when it is queued.
func (o *observer) queue(s semaphore, ctx context.Context, n int64) *wait {
	o.t.Helper()
	w := &wait{done: make(chan struct{})}
	before := s.stats().Waiters
	go func() {
		defer close(w.done)
		w.permit, w.err = s.Acquire(ctx, n)
	}()
	o.until("queued", func() bool { return s.stats().Waiters > before })
	return w
}

func (w *wait) end(o *observer) {
	o.t.Helper()
	select {
	case <-w.done:
	case <-time.After(2 * time.Minute):
		o.t.Fatalf("an acquire did not end; seen so far: %q", o.seen)
	}
}

func (o *observer) until(what string, holds func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("not %s within 2 minutes; seen so far: %q", what, o.seen)
		}
	}
}

var errGivenUp = errors.New("given up")

func (o *observer) arguments() {
	ctx := context.Background()
	s := o.open("arguments", 3)
	var none context.Context
	o.acquire(s, "nil context", none, 1)
	o.try(s, "nil context", none, 1)
	o.note("resize without a context: %t", invalid(s.resize(none, 3)))
	o.note("drain without a context: %t", errors.Is(s.drain(none), sema.ErrInvalid))
	o.acquire(s, "negative", ctx, -1)
	o.try(s, "negative", ctx, -1)
	o.acquire(s, "more than the capacity", ctx, 4)
	o.try(s, "more than the capacity", ctx, 4)
	done, cancel := context.WithCancelCause(ctx)
	cancel(errGivenUp)
	o.acquire(s, "done context", done, 1)
	o.try(s, "done context", done, 1)
	o.acquire(s, "done context", done, 0)
	inert := o.acquire(s, "nothing", ctx, 0)
	inert.Release()
	o.note("in use: %d", s.stats().InUse)
}

// invalid reports whether an error is ErrInvalid, or nil: in a process a resize does no I/O
// and takes no context.
func invalid(err error) bool { return err == nil || errors.Is(err, sema.ErrInvalid) }

func (o *observer) permits() {
	ctx := context.Background()
	s := o.open("permits", 3)
	p := o.acquire(s, "free", ctx, 2)
	st := s.stats()
	o.note("capacity %d, in use %d, waiters %d", st.Capacity, st.InUse, st.Waiters)
	o.try(s, "too few are free", ctx, 2)
	q := o.try(s, "free", ctx, 1)
	o.try(s, "none is free", ctx, 1)
	part, rest, err := p.Split(1)
	o.note("split: %v, %d and %d, held: %t", err, part.Weight(), rest.Weight(), p.Held())
	part.Release()
	o.until("released", func() bool { return s.stats().InUse == 2 })
	r := o.acquire(s, "the part was released", ctx, 1)
	again := rest
	again.Release()
	rest.Release()
	p.Release()
	o.note("held after a release of its copy: %t", rest.Held())
	q.Release()
	r.Release()
	o.until("released", func() bool { return s.stats().InUse == 0 })
	all := o.acquire(s, "all", ctx, 3)
	all.Release()
}

func (o *observer) order() {
	ctx := context.Background()
	s := o.open("order", 3)
	p, err := s.Acquire(ctx, 3)
	must(o.t, err)
	part, p, err := p.Split(1)
	must(o.t, err)
	gone, cancel := context.WithCancelCause(ctx)
	first := o.queue(s, gone, 3)
	heavy := o.queue(s, ctx, 2)
	light := o.queue(s, ctx, 1)
	part.Release()
	cancel(errGivenUp)
	first.end(o)
	o.note("the first waiter gives up: %s", o.describe(s, first.permit, first.err))
	o.try(s, "others wait", ctx, 1)
	p.Release()
	heavy.end(o)
	light.end(o)
	o.note("then %s and %s", o.describe(s, heavy.permit, heavy.err), o.describe(s, light.permit, light.err))
	heavy.permit.Release()
	light.permit.Release()
}

func (o *observer) bounds() {
	ctx := context.Background()
	s := o.open("max-wait", 1, sema.MaxWait(2*time.Second))
	p := o.acquire(s, "free", ctx, 1)
	o.acquire(s, "MaxWait passes", ctx, 1)
	p.Release()

	s = o.open("no-waiters", 1, sema.MaxWaiters(0))
	p = o.acquire(s, "free", ctx, 1)
	o.acquire(s, "nothing is queued", ctx, 1)
	p.Release()

	s = o.open("one-waiter", 1, sema.MaxWaiters(1))
	p = o.acquire(s, "free", ctx, 1)
	w := o.queue(s, ctx, 1)
	o.acquire(s, "the queue is full", ctx, 1)
	p.Release()
	w.end(o)
	o.note("the waiter: %s", o.describe(s, w.permit, w.err))
	w.permit.Release()

	s = o.open("deadline", 1)
	p = o.acquire(s, "free", ctx, 1)
	late, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	o.acquire(s, "the deadline passes", late, 1)
	p.Release()
}

func (o *observer) resizes() {
	ctx := context.Background()
	s := o.open("resizes", 4)
	a, b := o.acquire(s, "free", ctx, 2), o.acquire(s, "free", ctx, 2)
	large := o.queue(s, ctx, 3)
	small := o.queue(s, ctx, 1)
	must(o.t, s.resize(ctx, 2))
	large.end(o)
	o.note("too large after the shrink: %s", o.describe(s, large.permit, large.err))
	o.acquire(s, "too large after the shrink", ctx, 3)
	o.note("nothing is revoked: %t, %t", a.Held(), b.Held())
	a.Release()
	o.until("released", func() bool { return s.stats().InUse == 2 })
	o.try(s, "the debt is paid first", ctx, 1)
	b.Release()
	small.end(o)
	o.note("the waiter: %s", o.describe(s, small.permit, small.err))
	small.permit.Release()
	o.until("released", func() bool { return s.stats().InUse == 0 })
	must(o.t, s.resize(ctx, 0))
	o.try(s, "paused", ctx, 1)
	w := o.queue(s, ctx, 1)
	must(o.t, s.resize(ctx, 1))
	w.end(o)
	o.note("after the pause: %s", o.describe(s, w.permit, w.err))
	w.permit.Release()
	o.note("resize to -1: %t", errors.Is(s.resizeOrInvalid(ctx, -1), sema.ErrInvalid))
}

// resizeOrInvalid resizes, and returns ErrInvalid for a panic: where no error can be
// returned, a capacity below 0 panics.
func (s semaphore) resizeOrInvalid(ctx context.Context, n int64) (err error) {
	defer func() {
		if recover() != nil {
			err = sema.ErrInvalid
		}
	}()
	return s.resize(ctx, n)
}

func (o *observer) drains() {
	ctx := context.Background()
	s := o.open("drains", 1)
	p := o.acquire(s, "free", ctx, 1)
	w := o.queue(s, ctx, 1)
	short, cancel := context.WithCancelCause(ctx)
	drained := make(chan error, 1)
	go func() { drained <- s.drain(short) }()
	w.end(o)
	o.note("a waiter when it drains: %s", o.describe(s, w.permit, w.err))
	o.acquire(s, "draining", ctx, 1)
	o.try(s, "draining", ctx, 1)
	o.note("draining: %t", strings.Contains(s.text(), "draining"))
	cancel(errGivenUp)
	o.note("a drain that is given up while a permit is held: %t", errors.Is(<-drained, errGivenUp))
	p.Release()
	o.note("a drain when nothing is held: %v", s.drain(ctx))
	must(o.t, s.resume(ctx))
	q := o.acquire(s, "resumed", ctx, 1)
	q.Release()
}

func (o *observer) closes() {
	ctx := context.Background()
	s := o.open("closes", 1)
	p := o.acquire(s, "free", ctx, 1)
	w := o.queue(s, ctx, 1)
	closed := make(chan error, 1)
	go func() { closed <- s.close(ctx) }()
	w.end(o)
	o.note("a waiter when it is closed: %s", o.describe(s, w.permit, w.err))
	p.Release()
	o.note("close: %v", <-closed)
	o.acquire(s, "closed", ctx, 1)
	o.try(s, "closed", ctx, 1)
}
