package fleet

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// TestExact_GrantForAnEndedContextIsNotAcquired checks that a grant which arrives after the
// context has ended is not counted.
func TestExact_GrantForAnEndedContextIsNotAcquired(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newExact(b.session)
	b.strategy = s
	ctx, cancel := context.WithCancel(t.Context())
	c := &call{op: "acquire", start: time.Now()}
	w := b.newWaiter(c, &protocol.Op{Verb: protocol.Acquire, Weight: 2})
	if err := b.submit("acquire", w); err != nil {
		t.Fatal(err)
	}
	b.sent()
	b.session.resolveLocked(granted(w.op.Ticket, 1, 2))
	cancel()
	if _, err := s.await(ctx, c, w); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := s.usageLocked().acquired; n != 0 {
		t.Errorf("%d acquired", n)
	}
}

// TestPooled_DroppedGenerationCountsOnce checks a generation that is dropped while its collector
// waits for the mutex.
func TestPooled_DroppedGenerationCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ModePooled)
		var front atomic.Pointer[generation]
		s := newPooled(b.session, &front)
		s.mu.Lock()
		s.addBlockLocked(granted(1, 7, 4))
		s.mu.Unlock()
		var held []sema.Permit
		for range 3 {
			p, err := s.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		s.mu.Lock()
		s.retireLocked()
		s.mu.Unlock()
		synctest.Wait() // until the collector waits
		s.mu.Lock()
		held[0].Release()
		for s.retired[0].local.Stats().Acquired == 3 { // until the collector has acquired it, and waits for the mutex
			runtime.Gosched()
		}
		b.session.resolveLocked(protocol.Result{Kind: protocol.Revoked, Lease: 7})
		s.mu.Unlock()
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.usageLocked().acquired; n != 3 {
			t.Errorf("%d acquired, want 3", n)
		}
	})
}

// A foreign is a context that package context does not know.
type foreign struct {
	context.Context
	done  chan struct{}
	ended atomic.Bool
}

func (f *foreign) Done() <-chan struct{} { return f.done }
func (f *foreign) Err() error {
	if f.ended.Load() {
		return context.Canceled
	}
	return nil
}
func (f *foreign) Value(key any) any { return nil }

func (f *foreign) end() { f.ended.Store(true); close(f.done) }

func TestPooled_EndedForeignContextGetsNoPermit(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, ModePooled)
			var front atomic.Pointer[generation]
			s := newPooled(b.session, &front)
			s.mu.Lock()
			s.addBlockLocked(granted(1, 7, 1))
			s.mu.Unlock()
			p, err := s.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			ctx := &foreign{Context: t.Context(), done: make(chan struct{})}
			got := make(chan error, 1)
			go func() {
				q, err := s.acquire(ctx, &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
				q.Release()
				got <- err
			}()
			synctest.Wait()
			ctx.end()
			p.Release()
			if err := <-got; err == nil {
				t.Error("a permit was granted although the context had ended")
			}
		})
	}
}

func TestFailOpen_EndedForeignContextGetsNoPermit(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, FailOpen(1), FailOpenAfter(3*time.Second))
			f := b.failOpen
			b.driver.lastErr = errNoReply
			f.failedLocked(b.now, b.now)
			b.now += 4_000_000
			f.failedLocked(b.now-4_000_000, b.now)
			p, err := f.acquire(t.Context(), &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			ctx := &foreign{Context: t.Context(), done: make(chan struct{})}
			got := make(chan error, 1)
			go func() {
				q, err := f.acquire(ctx, &call{op: "acquire", req: protocol.Op{Weight: 1}, start: time.Now()})
				q.Release()
				got <- err
			}()
			synctest.Wait()
			ctx.end()
			p.Release()
			if err := <-got; err == nil {
				t.Error("a permit was granted although the context had ended")
			}
		})
	}
}
