package sema_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// tickets is a gate whose permits stand for leases of their own.
type tickets struct {
	monitor  *sema.Monitor
	released atomic.Int64
}

func newTickets(opts ...sema.SharedOption) *tickets {
	g := &tickets{}
	g.monitor = sema.NewMonitor(g, append([]sema.SharedOption{sema.Name("tickets")}, opts...)...)
	return g
}

func (g *tickets) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := g.monitor.Begin(ctx, n)
	return w.Leased(&ticketLease{g, n}), nil
}

func (g *tickets) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := g.monitor.BeginTry(ctx, n)
	return w.Leased(&ticketLease{g, n}), nil
}

type ticketLease struct {
	gate   *tickets
	weight int64
}

func (l *ticketLease) Release() { l.gate.released.Add(l.weight) }

func (l *ticketLease) Split(n int64) (first, rest sema.Lease, err error) {
	return &ticketLease{l.gate, n}, &ticketLease{l.gate, l.weight - n}, nil
}

func heldOf(name string) (weights []int64) {
	for _, h := range sema.Holders() {
		if h.Name == name {
			weights = append(weights, h.Weight)
		}
	}
	slices.Sort(weights)
	return weights
}

func TestWait_LeasedPermitsAreReported(t *testing.T) {
	var j journal
	g := newTickets(sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
	p := mustAcquire(t, g, 3)
	if _, own := p.Lease().(*ticketLease); !own {
		t.Errorf("the permit has the lease %T", p.Lease())
	}
	if got := heldOf("tickets"); !slices.Equal(got, []int64{3}) {
		t.Errorf("held %v", got)
	}
	a, b, err := p.Split(1)
	if err != nil || !slices.Equal(heldOf("tickets"), []int64{1, 2}) {
		t.Errorf("%v, held %v", err, heldOf("tickets"))
	}
	a.Release()
	b.Release()
	b.Release()
	if got := heldOf("tickets"); got != nil || g.released.Load() != 3 {
		t.Errorf("held %v, %d released", got, g.released.Load())
	}
	if got, want := kinds(j.take()), []sema.EventKind{sema.EventAcquired, sema.EventReleased, sema.EventReleased}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWait_OrderUnderALeaseThatIsSplit checks that an acquire under a permit that is
// split later counts as made under its parts.
func TestWait_OrderUnderALeaseThatIsSplit(t *testing.T) {
	var j journal
	g := newTickets(sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull), sema.Name("split tickets"))
	inner := sema.New(1, sema.Name("under split tickets"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
	p := mustAcquire(t, g, 2)
	mustAcquire(t, inner, 1).Release()
	a, b, err := p.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	a.Release()
	b.Release()
	q := mustAcquire(t, inner, 1)
	mustAcquire(t, g, 1).Release()
	q.Release()
	if !slices.ContainsFunc(j.take(), func(e sema.Event) bool { return e.Kind == sema.EventInverted }) {
		t.Error("the inversion was not reported")
	}
}

func TestWait_LeakOfALeasedPermitIsReported(t *testing.T) {
	var j journal
	g := newTickets(sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks)
	mustAcquire(t, g, 2) //semavet:ignore it is leaked on purpose
	leaked := func(e sema.Event) bool { return e.Kind == sema.EventLeaked && e.Weight == 2 }
	for deadline := time.Now().Add(time.Minute); !slices.ContainsFunc(j.take(), leaked); {
		if time.Now().After(deadline) {
			t.Fatal("the leak was not reported")
		}
		runtime.GC()
	}
	if g.released.Load() != 2 {
		t.Errorf("%d released, want 2", g.released.Load())
	}
}

func TestWait_LeasedWithoutAMonitor(t *testing.T) {
	g := newTickets()
	mustAcquire(t, g, 2).Release()
	if g.monitor != nil || g.released.Load() != 2 {
		t.Errorf("monitor %v, %d released", g.monitor, g.released.Load())
	}
}
