package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// A reporter is an observer that stores reports.
type reporter struct {
	mu     sync.Mutex
	events []sema.Event
}

func (r *reporter) Observe(e sema.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Report != "" {
		r.events = append(r.events, e)
	}
}

// of returns the reports of a kind.
func (r *reporter) of(kind sema.EventKind) (reports []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			reports = append(reports, e.Report)
		}
	}
	return reports
}

// diagnosed runs a test of a fleet semaphore with diagnostics, in each mode. The semaphore has a
// unique name, since lock orders are stored by name.
func diagnosed(t *testing.T, capacity int64, test func(t *testing.T, s *fleet.Semaphore, r *reporter), opts ...fleet.Option) {
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		t.Run(fmt.Sprintf("mode %d", mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := newClient(t, memstore.New())
				var r reporter
				s, err := c.Semaphore(strings.ReplaceAll(t.Name(), " ", "-"), capacity, slices.Concat([]fleet.Option{mode, sema.Observe(&r), sema.Diagnose(sema.DiagnoseFull)}, opts)...)
				wantErr(t, err, nil)
				test(t, s, &r)
			})
		})
	}
}

func TestDiagnose_HoldersAndProfiles(t *testing.T) {
	t.Parallel()
	diagnosed(t, 3, func(t *testing.T, s *fleet.Semaphore, _ *reporter) {
		held := func() (weights []int64) {
			for _, h := range sema.Holders() {
				if h.Name == s.Name() && strings.HasPrefix(h.Site, "fleet/") {
					weights = append(weights, h.Weight)
				}
			}
			slices.Sort(weights)
			return weights
		}
		p := mustAcquire(t, s, 3)
		if got := held(); !slices.Equal(got, []int64{3}) {
			t.Errorf("held %v", got)
		}
		var profile bytes.Buffer
		wantErr(t, pprof.Lookup("sema.held").WriteTo(&profile, 1), nil)
		if !strings.Contains(profile.String(), "TestDiagnose_HoldersAndProfiles") {
			t.Errorf("the profile of held permits does not contain %s", s.Name())
		}
		a, b, err := p.Split(1)
		wantErr(t, err, nil)
		if got := held(); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("held %v", got)
		}
		if _, ok := fleet.LeaseOf(b); !ok {
			t.Error("a part has no lease")
		}
		a.Release()
		b.Release()
		if got := held(); got != nil {
			t.Errorf("held %v", got)
		}
	})
}

func TestDiagnose_WarnHold(t *testing.T) {
	t.Parallel()
	diagnosed(t, 3, func(t *testing.T, s *fleet.Semaphore, r *reporter) {
		p := mustAcquire(t, s, 3)
		time.Sleep(time.Minute)
		p.Release()
		if got := r.of(sema.EventOverheld); len(got) != 1 || !strings.Contains(got[0], "TestDiagnose_WarnHold") {
			t.Errorf("%q", got)
		}
	}, sema.WarnHold(30*time.Second))
}

func TestDiagnose_SelfDeadlock(t *testing.T) {
	t.Parallel()
	diagnosed(t, 2, func(t *testing.T, s *fleet.Semaphore, r *reporter) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := s.Acquire(ctx, 2)
		wantErr(t, err, nil)
		_, err = s.Acquire(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		if got := r.of(sema.EventDeadlocked); len(got) != 1 || !strings.Contains(got[0], "holds all 2 permits in use") {
			t.Errorf("%q", got)
		}
		p.Release()
	})
}

func TestDiagnose_InversionWithALocalSemaphore(t *testing.T) {
	t.Parallel()
	diagnosed(t, 1, func(t *testing.T, s *fleet.Semaphore, r *reporter) {
		local := sema.New(1, sema.Name(s.Name()+"-local"), sema.Observe(r), sema.Diagnose(sema.DiagnoseFull))
		both := func(first, second sema.Gate) {
			p := mustAcquire(t, first, 1)
			q := mustAcquire(t, second, 1)
			q.Release()
			p.Release()
		}
		both(local, s)
		if got := r.of(sema.EventInverted); got != nil {
			t.Errorf("one order: %q", got)
		}
		both(s, local)
		if got := r.of(sema.EventInverted); len(got) != 1 || !strings.Contains(got[0], s.Name()+"-local") {
			t.Errorf("%q", got)
		}
	})
}

// TestDiagnose_DispatcherIsNoDeadlock acquires in a loop and releases in the goroutines
// that it starts.
func TestDiagnose_DispatcherIsNoDeadlock(t *testing.T) {
	t.Parallel()
	diagnosed(t, 2, func(t *testing.T, s *fleet.Semaphore, r *reporter) {
		var wg sync.WaitGroup
		for range 20 {
			p := mustAcquire(t, s, 1)
			wg.Go(func() {
				defer p.Release()
				time.Sleep(5 * time.Second)
			})
		}
		wg.Wait()
		for _, kind := range []sema.EventKind{sema.EventDeadlocked, sema.EventInverted, sema.EventLeaked} {
			if got := r.of(kind); got != nil {
				t.Errorf("%v: %q", kind, got)
			}
		}
	})
}

func TestDiagnose_LeakIsReported(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		c := fleet.New(memstore.New()) // not in a bubble, where leaks are not detected
		var r reporter
		s, err := c.Semaphore("leaky", 1, mode, sema.Observe(&r), sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks)
		wantErr(t, err, nil)
		mustAcquire(t, s, 1)
		for deadline := time.Now().Add(time.Minute); len(r.of(sema.EventLeaked)) == 0; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatal("the leak was not reported")
			}
		}
		if got := r.of(sema.EventLeaked)[0]; !strings.Contains(got, "TestDiagnose_LeakIsReported") {
			t.Errorf("%s", got)
		}
		mustAcquire(t, s, 1).Release() // the leaked permit was reclaimed
		wantErr(t, c.Close(t.Context()), nil)
	}
}

func TestDiagnose_WaitsAreReportedWhenTheyAreQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		var d eventLog
		s := semaphore(t, a, of(2, sema.Observe(&d)))
		mustAcquire(t, s, 1).Release()
		if n := d.count(sema.EventQueued); n != 0 {
			t.Errorf("an immediately granted acquire was reported as queued %d times", n)
		}
		p := mustAcquire(t, semaphore(t, b, of(2)), 2) // unknown to s
		granted := make(chan sema.Permit)
		go func() { granted <- mustAcquire(t, s, 1) }()
		synctest.Wait()
		if n := d.count(sema.EventQueued); n != 1 || s.Stats().Waiters != 1 {
			t.Errorf("queued %d times, %d waiters", n, s.Stats().Waiters)
		}
		p.Release()
		(<-granted).Release()
	})
}
