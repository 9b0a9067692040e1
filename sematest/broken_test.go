package sematest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// A brokenGate is a gate with a fault that the suite has to find.
type brokenGate struct {
	gate    sema.Gate
	acquire func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error)
	try     func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error)
}

func (b *brokenGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if b.acquire == nil {
		return b.gate.Acquire(ctx, n)
	}
	return b.acquire(b.gate, ctx, n)
}

func (b *brokenGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if b.try == nil {
		return b.gate.TryAcquire(ctx, n)
	}
	return b.try(b.gate, ctx, n)
}

// leaseFunc is a lease that calls a function at each release.
type leaseFunc func()

func (f leaseFunc) Release() { f() }

// faults are broken gates, by the check that has to fail.
var faults = map[string]func(n int64) sema.Gate{
	"a_nil_context_and_a_negative_weight_are_invalid": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			return g.Acquire(ctx, max(n, -n))
		}}
	},
	"weight_0_is_granted_at_once_as_an_inert_permit": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			if n == 0 {
				return sema.NewPermit(0, leaseFunc(func() {})), nil
			}
			return g.Acquire(ctx, n)
		}}
	},
	"more_than_the_capacity_is_too_large": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), try: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			p, err := g.TryAcquire(ctx, n)
			if err != nil && n > 2 {
				err = sema.ErrFull
			}
			return p, err
		}}
	},
	"a_context_that_has_ended_acquires_nothing": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), try: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			if ctx != nil {
				ctx = context.WithoutCancel(ctx)
			}
			return g.TryAcquire(ctx, n)
		}}
	},
	"a_try_takes_what_is_free_and_fails_with_ErrFull": func(n int64) sema.Gate { return sema.New(n + 1) },
	"the_first_release_of_all_copies_counts": func(n int64) sema.Gate {
		counter := sema.NewCounter(n, sema.MaxCapacity)
		take := func(_ sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			if !counter.TryWait(n) {
				return sema.Permit{}, sema.ErrFull
			}
			return sema.NewPermit(n, leaseFunc(func() { counter.Post(2 * n) })), nil // twice
		}
		return &brokenGate{acquire: take, try: take}
	},
	"a_stale_copy_does_not_release_a_later_permit": func(n int64) sema.Gate { return &forgetful{free: n} },
	"a_release_serves_a_waiter": func(n int64) sema.Gate {
		var last sema.Permit
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			p, err := g.Acquire(ctx, n)
			last = p
			return sema.NewPermit(n, leaseFunc(func() { _ = last })), err
		}}
	},
	"a_cancelled_waiter_returns_the_cause_and_takes_nothing": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			p, err := g.Acquire(ctx, n)
			if err != nil && ctx.Err() != nil {
				err = ctx.Err()
			}
			return p, err
		}}
	},
	"waiters_are_served_in_order_of_arrival":                func(n int64) sema.Gate { return sema.New(n, sema.LIFO) },
	"no_try_overtakes_a_waiter":                             func(n int64) sema.Gate { return sema.New(n, sema.Unfair) },
	"a_waiter_of_many_permits_is_not_overtaken":             func(n int64) sema.Gate { return &retrying{gate: sema.New(n), changed: make(chan struct{})} },
	"a_waiter_that_gives_up_does_not_delay_those_behind_it": func(n int64) sema.Gate { return &stubborn{gate: sema.New(n)} },
	"weights_are_returned_as_a_whole": func(n int64) sema.Gate {
		part := func(p sema.Permit, err error) (sema.Permit, error) {
			if err != nil || p.Weight() < 2 {
				return p, err
			}
			return sema.NewPermit(p.Weight(), leaseFunc(func() {
				a, _, _ := p.Split(1)
				a.Release()
			})), nil
		}
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			return part(g.Acquire(ctx, n))
		}}
	},
	"the_parts_of_a_permit_are_released_one_by_one": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			p, err := g.Acquire(ctx, n)
			if err != nil || n == 0 {
				return p, err
			}
			return sema.NewPermit(n, leaseFunc(p.Release)), nil // which cannot be split
		}}
	},
	"permits_are_conserved_when_callers_race_and_give_up": func(n int64) sema.Gate {
		return &brokenGate{gate: sema.New(n), acquire: func(g sema.Gate, ctx context.Context, n int64) (sema.Permit, error) {
			p, err := g.Acquire(ctx, n)
			if err == context.DeadlineExceeded {
				go g.Acquire(context.Background(), n) // as if it had been granted meanwhile
			}
			return p, err
		}}
	},
}

// forgetful is a gate without waiters whose permits share one handle.
type forgetful struct {
	mu   sync.Mutex
	free int64
}

func (f *forgetful) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	return f.TryAcquire(ctx, n)
}

func (f *forgetful) TryAcquire(_ context.Context, n int64) (sema.Permit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.free < n {
		return sema.Permit{}, sema.ErrFull
	}
	f.free -= n
	return sema.NewPermit(n, leaseFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free += 2 * n
	})), nil
}

// retrying is a gate whose waiters try again after each release, so that small ones go
// first.
type retrying struct {
	gate    *sema.Semaphore
	mu      sync.Mutex
	changed chan struct{} // closed by the next release
}

func (r *retrying) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		p, err := r.TryAcquire(ctx, n)
		if !errors.Is(err, sema.ErrFull) {
			return p, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sema.Permit{}, context.Cause(ctx)
		}
	}
}

func (r *retrying) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := r.gate.TryAcquire(ctx, n)
	if err != nil || n == 0 {
		return p, err
	}
	return sema.NewPermit(n, leaseFunc(func() {
		p.Release()
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.changed)
		r.changed = make(chan struct{})
	})), nil
}

// stubborn is a gate whose waiters keep their place when their context ends.
type stubborn struct{ gate *sema.Semaphore }

func (s *stubborn) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if ctx == nil || ctx.Err() != nil || n <= 0 {
		return s.gate.Acquire(ctx, n)
	}
	granted := make(chan sema.Permit, 1)
	go func() {
		p, err := s.gate.Acquire(context.Background(), n)
		if err != nil {
			return
		}
		granted <- p
	}()
	select {
	case p := <-granted:
		return p, nil
	case <-ctx.Done():
		return sema.Permit{}, context.Cause(ctx)
	}
}

func (s *stubborn) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return s.gate.TryAcquire(ctx, n)
}

const brokenVariable = "SEMATEST_BROKEN"

// TestCheck_Broken runs the suite for a broken gate. It is for TestCheck_FindsBrokenGates,
// which starts it in another process, since it fails.
func TestCheck_Broken(t *testing.T) {
	create := faults[os.Getenv(brokenVariable)]
	if create == nil {
		return
	}
	sematest.Check(t, sematest.Traits{FIFO: true, Weights: true, Split: true}, func(_ *testing.T, n int64) sema.Gate { return create(n) })
}

func TestCheck_FindsBrokenGates(t *testing.T) {
	t.Parallel()
	for name := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self := exec.Command(os.Args[0], "-test.run=^TestCheck_Broken$/^"+name+"$")
			self.Env = append(os.Environ(), brokenVariable+"="+name)
			out, err := self.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestCheck_Broken/"+name) && !strings.Contains(string(out), "panic: ") {
				t.Errorf("the check passes for a gate that breaks it: %v\n%s", err, out)
			}
		})
	}
}

const failingVariable = "SEMATEST_FAILING"

// TestExplore_Failing explores programs that fail. It is for
// TestExplore_ReportsTheSeedOfATestThatFails, which starts it in another process.
func TestExplore_Failing(t *testing.T) {
	fail := map[string]func(){
		"an error":      func() { t.Error("seen by the test") },
		"a fatal error": func() { t.Fatal("seen by the test") },
	}
	name := os.Getenv(failingVariable)
	if name == "" {
		return
	}
	var opts []sematest.Option
	if name == "no schedules" {
		opts = append(opts, sematest.Schedules(0))
	}
	sematest.Explore(t, func(w *sematest.World) {
		order := ""
		w.Go("a", func(context.Context) { order += "a" })
		w.Go("b", func(context.Context) {
			if order += "b"; order == "ab" {
				fail[name]()
			}
		})
	}, opts...)
}

// TestExplore_ReportsTheSeedOfATestThatFails checks programs that report a failure to the
// test instead of the World.
func TestExplore_ReportsTheSeedOfATestThatFails(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{
		"an error":      {"seen by the test", "replay: sematest.Seed(", "a starts"},
		"a fatal error": {"seen by the test", "replay: sematest.Seed(", "a starts"},
		"no schedules":  {"want at least one schedule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self := exec.Command(os.Args[0], "-test.run=^TestExplore_Failing$")
			self.Env = append(os.Environ(), failingVariable+"="+name)
			out, err := self.CombinedOutput()
			if err == nil {
				t.Error("the test passes")
			}
			for _, want := range wants {
				if strings.Count(string(out), want) != 1 {
					t.Errorf("want %q once in\n%s", want, out)
				}
			}
		})
	}
}
