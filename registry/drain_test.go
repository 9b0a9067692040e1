package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
)

func TestDrain_WaitsForAllHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registry.New()
		a, q := r.Semaphore("a", 1, "why"), wfq.New(1)
		r.Add("q", q, "why")
		r.Add("count", sema.NewCounter(0, 1), "why") // cannot be drained
		one, _ := a.Acquire(t.Context(), 1)
		two, _ := q.Acquire(t.Context(), 1)
		start := time.Now()
		time.AfterFunc(time.Second, one.Release)
		time.AfterFunc(2*time.Second, two.Release)
		go func() {
			time.Sleep(time.Millisecond)
			for _, g := range []sema.Gate{a, q} {
				if _, err := g.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
					t.Errorf("error %v, want draining", err)
				}
			}
		}()
		if err := r.Drain(t.Context()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		if _, err := r.Semaphore("late", 1, "why").Acquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
			t.Errorf("a limit registered after Drain: error %v", err)
		}
	})
}

func TestDrain_NamesWhatIsHeld(t *testing.T) {
	t.Parallel()
	r := registry.New()
	held := r.Semaphore("TestDrain_NamesWhatIsHeld", 5, "the reason", sema.Diagnose(sema.DiagnoseFull))
	r.Semaphore("idle", 1, "why")
	permit, _ := held.Acquire(t.Context(), 3)
	defer permit.Release()
	for range 4 {
		more := r.Semaphore("more"+string(rune('a'+len(keysOf(r)))), 1, "why")
		p, _ := more.Acquire(t.Context(), 1)
		defer p.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := r.Drain(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "idle") || sema.Hint(err) == "" {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{"drain: not finished", `"TestDrain_NamesWhatIsHeld" (the reason): 3 of 5 permits are still held, 3 at registry/drain_test.go:`, "1 of 1 permits"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want it to contain %q", err, part)
		}
	}
}

func keysOf(r *registry.Registry) (names []string) {
	for name := range r.All() {
		names = append(names, name)
	}
	return names
}

func TestDrain_FirstAreDrainedBeforeTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registry.New()
		http, db := r.Semaphore("http", 1, "why"), r.Semaphore("db", 1, "why")
		request, _ := http.Acquire(t.Context(), 1)
		go func() {
			time.Sleep(time.Second)
			if _, err := http.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
				t.Errorf("http: error %v", err)
			}
			query, err := db.Acquire(t.Context(), 1) // the request in progress needs it
			if err != nil {
				t.Errorf("db: error %v", err)
			}
			late, err := r.Semaphore("late", 1, "why").Acquire(t.Context(), 1)
			if err != nil {
				t.Errorf("late: error %v", err)
			}
			late.Release()
			query.Release()
			request.Release()
		}()
		if err := r.Drain(t.Context(), "http"); err != nil {
			t.Error(err)
		}
		if _, err := db.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
			t.Errorf("db: error %v", err)
		}
	})
}

func TestDrain_EndedContextDrainsAllTheSame(t *testing.T) {
	t.Parallel()
	r := registry.New()
	http, db := r.Semaphore("http", 1, "why"), r.Semaphore("db", 1, "why")
	request, _ := http.Acquire(t.Context(), 1)
	defer request.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.Drain(ctx, "http", "htp")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), `"htp": no such limit`) {
		t.Errorf("error %v", err)
	}
	if _, err := db.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrDraining) {
		t.Errorf("db: error %v", err)
	}
	if err := r.Drain(noContext); !errors.Is(err, sema.ErrInvalid) {
		t.Errorf("nil context: error %v", err)
	}
}

// A deafGate does not look at the context of Drain.
type deafGate struct {
	*sema.Semaphore
	drained chan struct{}
}

func (g *deafGate) Drain(context.Context) error {
	<-g.drained
	return nil
}

func TestDrain_DoesNotWaitForAGateThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registry.New()
		deaf := &deafGate{sema.New(1), make(chan struct{})}
		defer close(deaf.drained)
		r.Add("deaf", deaf, "test")
		r.Semaphore("db", 1, "test")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := r.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"deaf" (test): its method Drain did not return`) || strings.Contains(err.Error(), "db") {
			t.Errorf("%v", err)
		}
	})
}

// TestDrain_LeavesSharedGatesAlone: a process that shuts down must not stop the others.
func TestDrain_LeavesSharedGatesAlone(t *testing.T) {
	t.Parallel()
	r := registry.New()
	wide, late := &stored{capacity: 1}, &stored{capacity: 1}
	r.Add("wide", wide, "why")
	if err := r.Drain(t.Context(), "wide"); err != nil {
		t.Error(err)
	}
	r.Add("late", late, "why")
	if wide.drained || late.drained {
		t.Error("a gate of other processes was drained")
	}
}
