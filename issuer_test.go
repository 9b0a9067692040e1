package sema_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A tokens is a user's own gate. It never waits.
type tokens struct {
	free    atomic.Int64
	issuer  sema.Issuer
	monitor *sema.Monitor
	lost    chan struct{} // closed when all its permits are lost
}

func newTokens(n int64, opts ...sema.SharedOption) *tokens {
	g := &tokens{lost: make(chan struct{})}
	g.free.Store(n)
	g.monitor = sema.NewMonitor(g, append(opts, sema.Name("tokens"))...)
	g.issuer.Init(g, g.monitor)
	return g
}

func (g *tokens) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := g.monitor.Begin(ctx, n)
	for {
		free := g.free.Load()
		if free < n {
			return sema.Permit{}, w.Failed(&sema.Error{Op: "acquire", Name: g.Name(), Weight: n, Err: sema.ErrFull})
		}
		if g.free.CompareAndSwap(free, free-n) {
			if g.monitor == nil {
				return g.issuer.Permit(n), nil
			}
			return w.Granted(&g.issuer), nil
		}
	}
}

func (g *tokens) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}

func (g *tokens) TakeBack(n int64)      { g.free.Add(n) }
func (g *tokens) Name() string          { return "tokens" }
func (g *tokens) Lost() <-chan struct{} { return g.lost }
func (g *tokens) Err() error {
	select {
	case <-g.lost:
		return sema.ErrLost
	default:
		return nil
	}
}

func (g *tokens) wantFree(t *testing.T, want int64) {
	t.Helper()
	if free := g.free.Load(); free != want {
		t.Errorf("%d free, want %d", free, want)
	}
}

func TestIssuer_PermitIsReleasedOnce(t *testing.T) {
	for name, g := range map[string]*tokens{
		"plain": newTokens(100), "observed": newTokens(100, sema.Observe(&journal{})), "diagnosed": newTokens(100, sema.Diagnose(sema.DiagnoseFull)),
	} {
		t.Run(name, func(t *testing.T) {
			var permits []sema.Permit
			for range 50 { // more than there are slots
				permits = append(permits, mustAcquire(t, g, 2))
			}
			g.wantFree(t, 0)
			if p := permits[0]; p.Owner() != sema.Owner(g) || p.Backing() != sema.Backing(g) || p.Lease() != nil || p.String() != `permit of "tokens": 2, held` {
				t.Errorf("%v of %v", p, p.Owner())
			}
			for _, p := range permits {
				copied := p
				p.Release()
				copied.Release()
				if p.Held() || p.Err() != nil {
					t.Errorf("%v", p)
				}
			}
			g.wantFree(t, 100)

			first, rest, err := mustAcquire(t, g, 5).Split(2)
			wantErr(t, err, nil)
			first.Release()
			g.wantFree(t, 97)
			rest.Release()
			g.wantFree(t, 100)
		})
	}
}

// TestIssuer_StaleCopiesAreInert checks that a stale copy ends no other permit, although
// handles are reused at once, by other issuers too.
func TestIssuer_StaleCopiesAreInert(t *testing.T) {
	a, b := newTokens(1000), newTokens(1000)
	var stale []sema.Permit
	for range 200 {
		stale = append(stale, mustAcquire(t, a, 1))
	}
	for _, p := range stale {
		p.Release()
	}
	var held []sema.Permit
	for range 200 {
		held = append(held, mustAcquire(t, b, 1))
	}
	for _, p := range stale {
		p.Release()
		if o := p.Owner(); o != nil && o != sema.Owner(a) {
			t.Fatal("a released permit has another owner")
		}
	}
	a.wantFree(t, 1000)
	b.wantFree(t, 800)
	for _, p := range held {
		if !p.Held() {
			t.Fatal("a stale copy has ended a permit of another gate")
		}
		p.Release()
	}
	b.wantFree(t, 1000)
}

func TestIssuer_ConcurrentReleasesCountOnce(t *testing.T) {
	g, s := newTokens(64), sema.New(64)
	for _, gate := range []sema.Gate{g, s} {
		var working sync.WaitGroup
		for range 8 {
			working.Go(func() {
				for range 20_000 / raceFactor {
					p, err := gate.Acquire(context.Background(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					var racing sync.WaitGroup
					racing.Go(p.Release)
					p.Release()
					racing.Wait()
				}
			})
		}
		working.Wait()
	}
	g.wantFree(t, 64)
	wantStats(t, s, 0, 0)
}

// TestIssuer_CallsNoMethodOfTheOwner issues permits while the gate holds its own lock,
// which its Stats needs.
func TestIssuer_CallsNoMethodOfTheOwner(t *testing.T) {
	g := &locked{}
	g.issuer.Init(g, nil)
	g.mu.Lock()
	var permits []sema.Permit
	for range 100 {
		permits = append(permits, g.issuer.Permit(1))
	}
	g.mu.Unlock()
	for _, p := range permits {
		p.Release()
	}
	if g.returned != 100 {
		t.Errorf("%d of 100 permits were returned", g.returned)
	}
	var zero sema.Issuer
	wantPanic(t, "Release without Init", zero.Permit(1).Release)
}

type locked struct {
	mu       sync.Mutex
	returned int64
	issuer   sema.Issuer
}

func (g *locked) Stats() sema.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return sema.Stats{Capacity: 100}
}
func (g *locked) TakeBack(n int64) { g.mu.Lock(); defer g.mu.Unlock(); g.returned += n }

func TestStats_Acquired(t *testing.T) {
	for name, opts := range map[string][]sema.Option{
		"plain": nil, "observed": {sema.Observe(&journal{})}, "diagnosed": {sema.Diagnose(sema.DiagnoseFull)}, "sampled": {sema.Diagnose(sema.DiagnoseSampled)},
	} {
		t.Run(name, func(t *testing.T) {
			s := sema.New(1000, opts...)
			var held []sema.Permit
			for range 300 {
				held = append(held, mustAcquire(t, s, 2))
				mustAcquire(t, s, 1).Release()
			}
			for _, p := range held {
				first, rest, err := p.Split(1)
				wantErr(t, err, nil)
				first.Release()
				rest.Release()
			}
			if n := s.Stats().Acquired; n != 600 {
				t.Errorf("%d acquired, want 600: parts of a permit do not count", n)
			}
		})
	}
}

func TestMonitor_ReportsOnAnyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := newTokens(2, sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull), sema.WarnHold(time.Minute))
		p := mustAcquire(t, g, 2)
		if e := wantKinds(t, &j, sema.EventAcquired); e[0].Name != "tokens" || e[0].Weight != 2 || !strings.Contains(e[0].Site, "issuer_test.go:") {
			t.Errorf("%+v", e[0])
		}
		_, err := g.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		wantKinds(t, &j, sema.EventRejected)
		time.Sleep(2 * time.Minute)
		wantKinds(t, &j, sema.EventOverheld)
		found := false
		for _, h := range sema.Holders() {
			found = found || h.Name == "tokens" && h.Weight == 2 && h.Age == 2*time.Minute
		}
		if !found {
			t.Errorf("the permit is not among the holders: %v", sema.Holders())
		}
		p.Release()
		if e := wantKinds(t, &j, sema.EventReleased); e[0].Hold != 2*time.Minute {
			t.Errorf("%+v", e[0])
		}
	})
}

func TestMonitor_LeakOfAnyGateIsReported(t *testing.T) {
	var j journal
	g := newTokens(1, sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks)
	mustAcquire(t, g, 1) //semavet:ignore it is leaked on purpose
	var leaked []sema.Event
	for deadline := time.Now().Add(time.Minute); len(leaked) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the leak was not reported")
		}
		runtime.GC()
		for _, e := range j.take() {
			if e.Kind == sema.EventLeaked {
				leaked = append(leaked, e)
			}
		}
	}
	g.wantFree(t, 1)
	if e := leaked[0]; e.Name != "tokens" || !strings.Contains(e.Report, "TestMonitor_LeakOfAnyGateIsReported") {
		t.Errorf("%+v", e)
	}
}

func TestMonitor_ForClass(t *testing.T) {
	var j journal
	g := newTokens(3, sema.Observe(&j))
	paid := g.monitor.ForClass(g, "paid")
	w := paid.Begin(t.Context(), 1)
	g.free.Add(-1)
	var issuer sema.Issuer
	issuer.Init(g, paid)
	w.Granted(&issuer).Release()
	for _, e := range wantKinds(t, &j, sema.EventAcquired, sema.EventReleased) {
		if e.Name != "tokens" || e.Class != "paid" {
			t.Errorf("%+v", e)
		}
	}
	mustAcquire(t, g, 1).Release()
	for _, e := range wantKinds(t, &j, sema.EventAcquired, sema.EventReleased) {
		if e.Class != "" {
			t.Errorf("%+v", e)
		}
	}
	var none *sema.Monitor
	if none.ForClass(g, "paid") != nil {
		t.Error("a class is monitored although its gate is not")
	}
}

// A shared is a gate with a state, whose parts are acquired apart.
type shared struct {
	*tokens
	capacity int64
}

func (s shared) Stats() sema.Stats {
	free := s.free.Load()
	return sema.Stats{Capacity: s.capacity, InUse: s.capacity - free, Free: free}
}

// TestMonitor_ForPart holds a permit of one part and waits for another: for the deadlock
// audit they are one gate.
func TestMonitor_ForPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, whole := range []bool{true, false} {
			var j journal
			g := shared{newTokens(1), 1}
			m := sema.NewMonitor(g, sema.Name("parts"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
			part := m.ForPart
			if !whole {
				part = m.ForClass
			}
			read, write := part(g, "read"), part(watchedState{g}, "write")
			var issuer sema.Issuer
			issuer.Init(g, read)
			w := read.Begin(t.Context(), 1)
			g.free.Add(-1)
			p := w.Granted(&issuer)
			w = write.Begin(t.Context(), 1)
			w.Queued()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			w.Failed(sema.ErrTimeout)
			p.Release()
			found := 0
			for _, e := range j.take() {
				if e.Kind == sema.EventDeadlocked {
					found++
					if e.Name != "parts" || e.Class != "write" {
						t.Errorf("%+v", e)
					}
				}
			}
			if found > 0 != whole {
				t.Errorf("parts of one gate: %v, deadlocks reported: %d", whole, found)
			}
		}
		var none *sema.Monitor
		if none.ForPart(newTokens(1), "read") != nil || none.ForSignals(newTokens(1), "read") != nil {
			t.Error("a part is monitored although its gate is not")
		}
	})
}

// A watchedState is a part of a gate of which nothing is held.
type watchedState struct{ sema.Gate }

func (watchedState) Stats() sema.Stats { return sema.Stats{Capacity: 1, Free: 1} }

// TestMonitor_ForSignals lets a caller wait at an empty gate, which is no exhaustion.
func TestMonitor_ForSignals(t *testing.T) {
	var j journal
	g := shared{newTokens(0), 0}
	signals := g.monitor.ForSignals(g, "take")
	if signals != nil {
		t.Fatal("a monitor although no option requests one")
	}
	signals = sema.NewMonitor(g, sema.Observe(&j)).ForSignals(g, "take")
	var spender sema.Spender
	spender.Init()
	w := signals.BeginTry(t.Context(), 1)
	w.Queued()
	w.Spent(&spender, 1)
	for _, e := range wantKinds(t, &j, sema.EventQueued, sema.EventAcquired) {
		if e.Class != "take" {
			t.Errorf("%+v", e)
		}
	}
}

func TestMonitor_NilReportsNothing(t *testing.T) {
	g := newTokens(1)
	if g.monitor != nil {
		t.Fatal("a monitor although no option requests one")
	}
	g.monitor.Report(sema.Event{Kind: sema.EventAcquired})
	mustAcquire(t, g, 1).Release()
	g.wantFree(t, 1)
}

func TestSettingsOf_Options(t *testing.T) {
	shared := []sema.SharedOption{sema.Name("db"), sema.MaxWait(time.Second), sema.MaxWaiters(0)}
	if got, want := sema.SettingsOf(shared...), (sema.Settings{Name: "db", MaxWait: time.Second, MaxWaiters: sema.NoWaiters}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := sema.SettingsOf[sema.Option](sema.LIFO, sema.MaxWaiters(3)); got != (sema.Settings{Order: sema.LIFO, MaxWaiters: 3}) {
		t.Errorf("%+v", got)
	}
}

// A custom gate: at most n uploads, and none waits.
func ExampleIssuer() {
	uploads := newTokens(2)
	permit, err := uploads.Acquire(context.Background(), 2)
	fmt.Println(permit, err)
	_, err = uploads.Acquire(context.Background(), 1)
	fmt.Println(err != nil)
	permit.Release()
	permit.Release() // has no effect
	fmt.Println(uploads.free.Load(), "free")
	// Output:
	// permit of "tokens": 2, held <nil>
	// true
	// 2 free
}
