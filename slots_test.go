package sema_test

import (
	"context"
	"slices"
	"testing"

	"github.com/sema-go/sema"
)

// A shelf is a gate whose permits are numbered. It never waits, and its numbers rise.
type shelf struct {
	monitor *sema.Monitor
	next    int64
	back    []int64 // numbers of released permits
}

func newShelf(opts ...sema.SharedOption) *shelf {
	g := &shelf{}
	g.monitor = sema.NewMonitor(g, append(opts, sema.Name("shelf"))...)
	return g
}

func (g *shelf) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := g.monitor.Begin(ctx, n)
	o := &numberedOwner{gate: g}
	for range n {
		o.slots = append(o.slots, g.next)
		g.next++
	}
	o.issuer.Init(o, g.monitor)
	return w.Granted(&o.issuer), nil
}

func (g *shelf) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}

// A numberedOwner is the owner of one permit of a shelf.
type numberedOwner struct {
	gate   *shelf
	issuer sema.Issuer
	slots  []int64
}

func (o *numberedOwner) TakeBack(int64) { o.gate.back = append(o.gate.back, o.slots...) }
func (o *numberedOwner) Slots() []int64 { return o.slots }

func (o *numberedOwner) Split(n int64) *sema.Issuer {
	rest := &numberedOwner{gate: o.gate, slots: o.slots[n:]}
	o.slots = o.slots[:n]
	rest.issuer.Init(rest, o.gate.monitor)
	return &rest.issuer
}

// wantSlots checks the numbers of a permit.
func wantSlots(t *testing.T, p sema.Permit, want ...int64) {
	t.Helper()
	if got := p.Slots(); !slices.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%v has the numbers %v, want %v", p, got, want)
	}
}

func TestPermit_SlotsOfAnOwner(t *testing.T) {
	for name, g := range map[string]*shelf{
		"plain": newShelf(), "observed": newShelf(sema.Observe(&journal{})), "diagnosed": newShelf(sema.Diagnose(sema.DiagnoseFull)),
	} {
		t.Run(name, func(t *testing.T) {
			p := mustAcquire(t, g, 4)
			wantSlots(t, p, 0, 1, 2, 3)
			first, rest, err := p.Split(1)
			wantErr(t, err, nil)
			wantSlots(t, p)
			wantSlots(t, first, 0)
			wantSlots(t, rest, 1, 2, 3)
			middle, last, err := rest.Split(2)
			wantErr(t, err, nil)
			wantSlots(t, first, 0)
			wantSlots(t, middle, 1, 2)
			wantSlots(t, last, 3)
			for _, p := range []sema.Permit{last, first, middle} {
				p.Release()
				wantSlots(t, p)
			}
			if want := []int64{3, 0, 1, 2}; !slices.Equal(g.back, want) {
				t.Errorf("released in the order %v, want %v", g.back, want)
			}
		})
	}
}

// A numberedLease is a lease of slots.
type numberedLease []int64

func (numberedLease) Release()         {}
func (l numberedLease) Slots() []int64 { return l }

func TestPermit_SlotsOfALease(t *testing.T) {
	p := sema.NewPermit(2, numberedLease{3, 7})
	wantSlots(t, p, 3, 7)
	p.Release()
	wantSlots(t, p)
}

func TestPermit_SlotsOfOthers(t *testing.T) {
	wantSlots(t, sema.Permit{})
	for _, p := range []sema.Permit{mustAcquire(t, sema.New(2), 2), mustAcquire(t, newTokens(2), 2), mustAcquire(t, newTickets(), 2)} {
		wantSlots(t, p)
		p.Release()
		wantSlots(t, p)
	}
}

// TestPermit_SplitCountsOnce checks that the parts of a permit count as one, although they
// have different issuers.
func TestPermit_SplitCountsOnce(t *testing.T) {
	g := newShelf()
	p := mustAcquire(t, g, 3)
	owner := p.Owner().(*numberedOwner)
	first, rest, err := p.Split(1)
	wantErr(t, err, nil)
	if issued, others := owner.issuer.Issued(), rest.Owner().(*numberedOwner).issuer.Issued(); issued != 1 || others != 0 {
		t.Errorf("%d and %d permits were issued, want 1 and 0", issued, others)
	}
	first.Release()
	rest.Release()
}
