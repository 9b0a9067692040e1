package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/store"
)

// A fakeSemaphore is a semaphore that grants a permit when the test sends one.
type fakeSemaphore struct {
	granted  chan scope.Hold
	standing func() (scope.Standing, error)
}

func (l *fakeSemaphore) Acquire(ctx context.Context, _ int64) (scope.Hold, error) {
	select {
	case h := <-l.granted:
		return h, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *fakeSemaphore) Standing(context.Context) (scope.Standing, error) { return l.standing() }

// A hold is a permit that is never lost.
type hold struct{ released bool }

func (*hold) Environment() []string           { return nil }
func (*hold) Slots() []int64                  { return nil }
func (*hold) Attach(*exec.Cmd) error          { return nil }
func (*hold) Lost() <-chan struct{}           { return nil }
func (*hold) Err() error                      { return nil }
func (*hold) Left() (time.Duration, bool)     { return 0, false }
func (*hold) Deadline() time.Time             { return time.Time{} }
func (h *hold) Release(context.Context) error { h.released = true; return nil }

// A waiting is a waiter with the notices that it has printed, and when.
type waiting struct {
	*fakeSemaphore
	wrapper *wrapper
	start   time.Time
	printed []string
}

func wait(standing func() (scope.Standing, error)) *waiting {
	w := &waiting{fakeSemaphore: &fakeSemaphore{make(chan scope.Hold), standing}, start: time.Now()}
	w.wrapper = &wrapper{signals: make(chan os.Signal, 1), Options: Options{
		Want: scope.Want{Name: "x", Wait: -1}, Weight: 1,
		Printf: func(format string, args ...any) {
			w.printed = append(w.printed, fmt.Sprintf("%v %s", time.Since(w.start).Round(10*time.Second), printable.Sprintf(format, args...)))
		},
	}}
	return w
}

func TestAcquire_PrintsNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wait(func() (scope.Standing, error) {
			s := scope.Standing{Position: 3, State: scope.State{Name: "x", InUse: 7, Effective: 7, Waiting: 4}}
			for pid := range 7 {
				s.Holders = append(s.Holders, scope.Participant{Host: "h", Process: pid + 1, Weight: 1, Since: time.Now().Add(-time.Minute), About: "command=make"})
			}
			return s, nil
		})
		granted := &hold{}
		go func() {
			time.Sleep(10 * time.Minute)
			w.granted <- granted
		}()
		got, err := w.wrapper.acquire(t.Context(), w)
		if got != granted || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
		if n := len(w.printed); n < 11 || n > 15 {
			t.Errorf("%d notices in ten minutes", n)
		}
		for _, want := range []string{`waiting for "x" for 2s, position 3 of 4 in the queue; 7 of 7 permits are held by`, "\n  h, process 1, for 1m0s: command=make\n", "\n  and 2 more, see 'sema show x'"} {
			if !strings.Contains(w.printed[0], want) {
				t.Errorf("no %q in\n%s", want, w.printed[0])
			}
		}
	})
}

func TestAcquire_PrintsNothingAfterAShortWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		w := wait(func() (scope.Standing, error) { polls++; return scope.Standing{}, nil })
		go func() {
			time.Sleep(notices[0] - time.Millisecond)
			w.granted <- &hold{}
		}()
		if _, err := w.wrapper.acquire(t.Context(), w); err != nil || len(w.printed) > 0 || polls > 1 {
			t.Errorf("%v, printed %v, %d polls", err, w.printed, polls)
		}
	})
}

// TestAcquire_GivesUpAnUnavailableStore checks that a wait ends if the store stays unavailable, but
// not if the store is available again.
func TestAcquire_GivesUpAnUnavailableStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := &store.Unreachable{Cause: errors.New("cannot reach it")}
		start := time.Now()
		w := wait(func() (scope.Standing, error) {
			if now := time.Since(start); now > 5*time.Second && now < 50*time.Second || now > 3*time.Minute {
				return scope.Standing{}, away
			}
			return scope.Standing{}, nil
		})
		_, err := w.wrapper.acquire(t.Context(), w)
		if took := time.Since(start); !errors.Is(err, sema.ErrUnavailable) || took < 3*time.Minute+unavailableAfter || took > 6*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		if !strings.Contains(w.printed[1], `still waiting for "x", but the store fails: cannot reach it`) {
			t.Errorf("printed %q", w.printed[1])
		}
	})
}

// TestAcquire_WaitsForAStoreThatWasReached checks that a wait continues for unavailableAfter if the
// store was reached before.
func TestAcquire_WaitsForAStoreThatWasReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wait(nil)
		w.standing = func() (scope.Standing, error) {
			if time.Since(w.start) > time.Second {
				return scope.Standing{}, &store.Unreachable{Cause: errors.New("cannot reach it")}
			}
			return scope.Standing{}, nil
		}
		_, err := w.wrapper.acquire(t.Context(), w)
		if took := time.Since(w.start); !errors.Is(err, sema.ErrUnavailable) || took < unavailableAfter {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestAcquire_DoesNotWaitForAStoreThatWasNeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wait(func() (scope.Standing, error) {
			return scope.Standing{}, &store.Unreachable{Cause: errors.New("cannot reach it")}
		})
		_, err := w.wrapper.acquire(t.Context(), w)
		if took := time.Since(w.start); !errors.Is(err, sema.ErrUnavailable) || took != notices[0] || len(w.printed) > 0 {
			t.Errorf("after %v: %v, printed %v", took, err, w.printed)
		}
	})
}

// TestAcquire_ReleasesAPermitGrantedAfterAnInterrupt checks that a permit is released if the signal
// and the grant cross.
func TestAcquire_ReleasesAPermitGrantedAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crossed := &hold{}
		w := wait(nil)
		w.wrapper.signals <- os.Interrupt
		_, err := w.wrapper.acquire(t.Context(), grantsAnyway{crossed})
		if exit.Code(err) != exit.Interrupted || !crossed.released {
			t.Errorf("%v, released %v", err, crossed.released)
		}
	})
}

// A grantsAnyway grants a permit although the context has ended.
type grantsAnyway struct{ hold *hold }

func (g grantsAnyway) Acquire(ctx context.Context, _ int64) (scope.Hold, error) {
	<-ctx.Done()
	return g.hold, nil
}

func (grantsAnyway) Standing(context.Context) (scope.Standing, error) { return scope.Standing{}, nil }
