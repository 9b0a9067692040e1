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

// In each mode a try takes a round trip, also in an outage, and never queues.
func TestSemaphore_TryAcquireIsBoundedByTryTimeout(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, line := join(t, memstore.New())
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
				line.cut.Store(true)
				try(sema.ErrUnavailable, time.Second) // the session is not open yet
				try(sema.ErrUnavailable, time.Second)
				line.cut.Store(false)
				time.Sleep(time.Minute)
				try(nil, 0)
			})
		})
	}
}

// The holder died an hour ago and no client has asked since. The first try cannot
// be decided; the client asks until it can, so that the next one is final.
func TestSemaphore_TryAcquireAfterACrashIsDecidedSoon(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.NewWithClock(time.Now) // which does not look by itself
				a, line := join(t, store)
				o := of(1, fleet.TTL(10*time.Minute), mode)
				mustAcquire(t, semaphore(t, a, o), 1)
				line.cut.Store(true)
				time.Sleep(time.Hour)
				b, _ := join(t, store)
				s := semaphore(t, b, o)
				_, err := s.TryAcquire(t.Context(), 1)
				wantErr(t, err, sema.ErrFull)
				var fault *sema.Error
				if !errors.As(err, &fault) || fault.After <= 0 || fault.After > 10*time.Minute {
					t.Fatalf("%v: try again after %v, want at most a TTL", err, fault.After)
				}
				_, err = s.TryAcquire(t.Context(), 2)
				wantErr(t, err, sema.ErrTooLarge)
				if errors.As(err, &fault) && fault.After != 0 {
					t.Errorf("%v, which is final", err)
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

// A store inside a process ends expired sessions by itself: the first try long after a
// crash is final.
func TestSemaphore_TryAcquireAfterACrashIsFinalOverAStoreInAProcess(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, line := join(t, store)
				o := of(1, fleet.TTL(time.Minute), mode)
				mustAcquire(t, semaphore(t, a, o), 1)
				line.cut.Store(true)
				time.Sleep(130 * time.Second)
				b, _ := join(t, store)
				p, err := semaphore(t, b, o).TryAcquire(t.Context(), 1)
				wantErr(t, err, nil)
				p.Release()
			})
		})
	}
}

// A client whose wait was too short polls on, so that the next attempt succeeds.
func TestSemaphore_AcquireThatTimesOutAfterACrashIsDecidedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.NewWithClock(time.Now)
		a, line := join(t, store)
		o := of(1, fleet.TTL(10*time.Minute), sema.MaxWait(10*time.Second))
		mustAcquire(t, semaphore(t, a, o), 1)
		line.cut.Store(true)
		time.Sleep(time.Hour)
		b, _ := join(t, store)
		s := semaphore(t, b, o)
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		time.Sleep(10 * time.Minute)
		p, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, nil)
		p.Release()
	})
}

// A store that is silent for all of a short MaxWait is unavailable, though no
// exchange has failed yet.
func TestSemaphore_SilentStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, line := join(t, memstore.New())
				s := semaphore(t, c, of(1, mode, sema.MaxWait(500*time.Millisecond)))
				line.cut.Store(true)
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrUnavailable)
				line.cut.Store(false)
				time.Sleep(time.Minute)
				p := mustAcquire(t, s, 1)
				_, err = s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrTimeout)
				p.Release()
			})
		})
	}
}
