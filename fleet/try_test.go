package fleet_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// TestSemaphore_TryAcquireIsBoundedByTryTimeout checks that a try takes one round trip and never
// queues, in each mode, and is bounded during an outage.
func TestSemaphore_TryAcquireIsBoundedByTryTimeout(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, conn := newClient(t, memstore.New())
				s := semaphore(t, c, of(1, mode))
				try := func(want error, within time.Duration) {
					t.Helper()
					start := time.Now()
					p, err := s.TryAcquire(t.Context(), 1)
					wantErr(t, err, want)
					if took := time.Since(start); took != within {
						t.Errorf("it took %v, want %v", took, within)
					}
					p.Release()
				}
				conn.cut.Store(true)
				try(sema.ErrUnavailable, time.Second) // the session is not open yet
				try(sema.ErrUnavailable, time.Second)
				conn.cut.Store(false)
				time.Sleep(time.Minute)
				try(nil, 0)
			})
		})
	}
}

// TestSemaphore_TryAcquireAfterACrashIsDecidedSoon checks a try an hour after the holder crashed,
// with no other call since. The first try cannot be decided. The client polls, so that the next
// try is decided.
func TestSemaphore_TryAcquireAfterACrashIsDecidedSoon(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.NewWithClock(time.Now) // does not expire sessions by itself
				a, conn := newClient(t, store)
				o := of(1, fleet.TTL(10*time.Minute), mode)
				mustAcquire(t, semaphore(t, a, o), 1)
				conn.cut.Store(true)
				time.Sleep(time.Hour)
				b, _ := newClient(t, store)
				s := semaphore(t, b, o)
				_, err := s.TryAcquire(t.Context(), 1)
				wantErr(t, err, sema.ErrFull)
				var fault *sema.Error
				if !errors.As(err, &fault) || fault.After <= 0 || fault.After > 10*time.Minute {
					t.Fatalf("%v: After is %v, want at most a TTL", err, fault.After)
				}
				_, err = s.TryAcquire(t.Context(), 2)
				wantErr(t, err, sema.ErrTooLarge)
				if errors.As(err, &fault) && fault.After != 0 {
					t.Errorf("%v has After %v, want 0: it is decided", err, fault.After)
				}
				_, err = s.TryAcquire(t.Context(), 1)
				if !errors.As(err, &fault) {
					t.Fatal(err)
				}
				time.Sleep(fault.After + time.Second)
				p, err := s.TryAcquire(t.Context(), 1)
				wantErr(t, err, nil)
				p.Release()
			})
		})
	}
}

// TestSemaphore_TryAcquireAfterACrashIsFinalOverAStoreInAProcess checks a store in a process, which
// ends expired sessions by itself: the first try long after a crash is decided.
func TestSemaphore_TryAcquireAfterACrashIsFinalOverAStoreInAProcess(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, conn := newClient(t, store)
				o := of(1, fleet.TTL(time.Minute), mode)
				mustAcquire(t, semaphore(t, a, o), 1)
				conn.cut.Store(true)
				time.Sleep(130 * time.Second)
				b, _ := newClient(t, store)
				p, err := semaphore(t, b, o).TryAcquire(t.Context(), 1)
				wantErr(t, err, nil)
				p.Release()
			})
		})
	}
}

// TestSemaphore_AcquireThatTimesOutAfterACrashIsDecidedSoon checks that the client keeps polling
// after a short wait has timed out, so that the next attempt succeeds.
func TestSemaphore_AcquireThatTimesOutAfterACrashIsDecidedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.NewWithClock(time.Now)
		a, conn := newClient(t, store)
		o := of(1, fleet.TTL(10*time.Minute), sema.MaxWait(10*time.Second))
		mustAcquire(t, semaphore(t, a, o), 1)
		conn.cut.Store(true)
		time.Sleep(time.Hour)
		b, _ := newClient(t, store)
		s := semaphore(t, b, o)
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		time.Sleep(10 * time.Minute)
		p, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, nil)
		p.Release()
	})
}

// TestSemaphore_UnresponsiveStoreIsUnavailable checks that a store which does not reply during a
// short MaxWait is unavailable, although no exchange has failed yet.
func TestSemaphore_UnresponsiveStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, conn := newClient(t, memstore.New())
				s := semaphore(t, c, of(1, mode, sema.MaxWait(500*time.Millisecond)))
				conn.cut.Store(true)
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrUnavailable)
				conn.cut.Store(false)
				time.Sleep(time.Minute)
				p := mustAcquire(t, s, 1)
				_, err = s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrTimeout)
				p.Release()
			})
		})
	}
}
