package sema_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

func mustAcquire(t testing.TB, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(context.Background(), n)
	if err != nil {
		t.Fatalf("acquire %d: %v", n, err)
	}
	return p
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func wantStats(t testing.TB, s *sema.Semaphore, inUse int64, waiters int) {
	t.Helper()
	if st := s.Stats(); st.InUse != inUse || st.Waiters != waiters {
		t.Fatalf("%d in use and %d waiting, want %d and %d", st.InUse, st.Waiters, inUse, waiters)
	}
}

// A result is the result of an acquire in another goroutine.
type result struct {
	permit sema.Permit
	err    error
}

// acquiring starts an acquire in a goroutine and returns the channel of its result.
func acquiring(ctx context.Context, g sema.Gate, n int64) <-chan result {
	c := make(chan result, 1)
	go func() {
		p, err := g.Acquire(ctx, n)
		c <- result{p, err}
	}()
	return c
}

// waitersReach waits until n callers are queued, for tests that must run outside a
// bubble.
func waitersReach(t testing.TB, n int, waiters func() int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); waiters() != n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d waiters, want %d", waiters(), n)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// isDone reports whether the acquire has ended.
func isDone(c <-chan result) bool { return len(c) > 0 }

func wantPanic(t *testing.T, name string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("%s did not panic", name)
		}
	}()
	call()
}

func wantPanicText(t *testing.T, text string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), text) {
			t.Errorf("panic %v, want %q in it", r, text)
		}
	}()
	call()
}
