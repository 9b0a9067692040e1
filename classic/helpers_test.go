package classic_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"

	"github.com/sema-go/sema"
)

// noContext is what a careless caller passes.
var noContext context.Context

// errCause is the cause of contexts that tests end.
var errCause = errors.New("cause")

// A failer is a test, or one of package rapid.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A call is a function that runs in another goroutine of a bubble.
type call[T any] struct {
	ended atomic.Bool // set after the results
	value T
	err   error
}

// start starts a call, and returns when it has ended or waits.
func start[T any](fn func() (T, error)) *call[T] {
	c := &call[T]{}
	go func() {
		c.value, c.err = fn()
		c.ended.Store(true)
	}()
	synctest.Wait()
	return c
}

// acquiring starts an Acquire.
func acquiring(ctx context.Context, g sema.Gate, n int64) *call[sema.Permit] {
	return start(func() (sema.Permit, error) { return g.Acquire(ctx, n) })
}

// wantWaiting fails if the call has ended.
func (c *call[T]) wantWaiting(t failer) {
	t.Helper()
	synctest.Wait()
	if c.ended.Load() {
		t.Fatalf("a call returned %v, %v, want it to wait", c.value, c.err)
	}
}

// want fails unless the call has ended without an error, and returns its value.
func (c *call[T]) want(t failer) T {
	t.Helper()
	synctest.Wait()
	if !c.ended.Load() || c.err != nil {
		t.Fatalf("a call: ended %v, error %v, want its result", c.ended.Load(), c.err)
	}
	return c.value
}

// wantErr fails unless the call has ended with an error.
func (c *call[T]) wantErr(t failer, want error) {
	t.Helper()
	synctest.Wait()
	if !c.ended.Load() || !errors.Is(c.err, want) {
		t.Fatalf("a call: ended %v, error %v, want %v", c.ended.Load(), c.err, want)
	}
}

// mustAcquire acquires what is free.
func mustAcquire(t failer, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.TryAcquire(context.Background(), n)
	if err != nil {
		t.Fatalf("acquire %d: %v", n, err)
	}
	return p
}

// wantErr fails unless err is the wanted one.
func wantErr(t failer, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// A journal records events.
type journal struct {
	mu     sync.Mutex
	events []sema.Event
}

// Observe implements [sema.Observer].
func (j *journal) Observe(e sema.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// take returns the events so far as "class kind", and forgets them.
func (j *journal) take() (texts []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		texts = append(texts, e.Class+" "+e.Kind.String())
	}
	j.events = nil
	return texts
}

// want fails unless exactly these events were recorded since the last call.
func (j *journal) want(t failer, want ...string) {
	t.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// find returns the events of a kind.
func (j *journal) find(kind sema.EventKind) (found []sema.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}
