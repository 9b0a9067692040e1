package sema

import (
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func TestCore_SizesFitCacheLines(t *testing.T) {
	if n := unsafe.Sizeof(handle{}); n != 64 {
		t.Errorf("a handle is %d bytes, want a cache line", n)
	}
	if n := unsafe.Sizeof(cell{}); n != 128 {
		t.Errorf("a cell is %d bytes, want two cache lines", n)
	}
	if n := unsafe.Sizeof(waiter{}); n > 64 {
		t.Errorf("a waiter is %d bytes; x/sync's are 64, the channel apart", n)
	}
	if n := unsafe.Sizeof(Permit{}); n != 24 {
		t.Errorf("a permit is %d bytes", n)
	}
	if n := unsafe.Sizeof(Spin{}); n != 8 {
		t.Errorf("a Spin is %d bytes", n)
	}
}

func TestStackHint_StaysInRange(t *testing.T) {
	for log := uint8(1); log <= 8; log++ {
		if h := stackHint(64 - log); h >= 1<<log {
			t.Errorf("hint %d of %d", h, 1<<log)
		}
	}
}

func TestContention_ProfileStaysBounded(t *testing.T) {
	profile := pprof.NewProfile("sema.test.contention")
	totals := waitTotals{bySite: map[string]*SiteWait{}, quantum: time.Millisecond}
	var entered time.Duration
	for range 200 {
		totals.addToProfileLocked(profile, time.Second, 0)
		entered += time.Second
	}
	if n := profile.Count(); n > maxContentionKeys || n < maxContentionKeys/4 {
		t.Errorf("%d keys", n)
	}
	// The remaining keys stand for all the time that was added, within a tenth.
	if total := time.Duration(profile.Count()) * totals.quantum; total < entered*9/10 || total > entered*11/10 {
		t.Errorf("the profile shows %v, want %v", total, entered)
	}
}

func TestDiagnoseLevel_IsParsed(t *testing.T) {
	for text, want := range map[string]DiagnoseLevel{"": DiagnoseOff, "off": DiagnoseOff, "Sampled": DiagnoseSampled, "FULL": DiagnoseFull} {
		if got, ok := parseLevel(text); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	if _, ok := parseLevel("verbose"); ok {
		t.Error("an unknown level was accepted")
	}
	for l := DiagnoseOff; l <= DiagnoseFull; l++ {
		if got, ok := parseLevel(l.String()); !ok || got != l {
			t.Errorf("%v is not parsed from its String", l)
		}
	}
}

func TestEventKind_HasAName(t *testing.T) {
	for k := EventQueued; k <= EventMismatched; k++ {
		if strings.HasPrefix(k.String(), "EventKind(") || k.String() == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

// TestOrderGraph_IsBounded generates names, as a program may do at run time, for held and
// for wanted semaphores.
func TestOrderGraph_IsBounded(t *testing.T) {
	g := orderGraph{edges: map[string]map[string]edge{}}
	for i := range 3 * maxOrders {
		g.note(hold{name: "global"}, fmt.Sprint("tenant ", i), stack{1}, nil)
		g.note(hold{name: fmt.Sprint("job ", i)}, "disk", stack{1}, nil)
	}
	edges := 0
	for _, wanted := range g.edges {
		edges += len(wanted)
	}
	if edges > maxOrders {
		t.Errorf("%d edges are recorded, want at most %d", edges, maxOrders)
	}
}

// TestIssuer_GrowsForPermitsHeldTogether checks that permits that one goroutine holds
// together get slots in the end, and that growing loses no count.
func TestIssuer_GrowsForPermitsHeldTogether(t *testing.T) {
	const together, rounds = 64, 200
	s := New(together)
	ctx := t.Context()
	var held [together]Permit
	round := func() {
		for i := range held {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			held[i] = p
		}
		for _, p := range held {
			p.Release()
		}
	}
	for range rounds {
		round()
	}
	if got := s.Stats(); got.Acquired != together*rounds || got.InUse != 0 {
		t.Errorf("after %d permits: %d acquired, %d in use", together*rounds, got.Acquired, got.InUse)
	}
	before := s.issuer.unslotted.Load()
	for range rounds {
		round()
	}
	if without := s.issuer.unslotted.Load() - before; without > together*rounds/100 {
		t.Errorf("%d of %d permits got no slot after the table has grown", without, together*rounds)
	}
	if n := len(s.issuer.slots.Load().slots); n > 2*together {
		t.Errorf("%d slots for a capacity of %d", n, together)
	}
}

// TestIssuer_SplitUsesOneMoreSlot checks that the first part of a split keeps the slot of
// the permit.
func TestIssuer_SplitUsesOneMoreSlot(t *testing.T) {
	s := New(4)
	p, err := s.Acquire(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, err := p.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	if first.handle != p.handle || rest.handle == p.handle {
		t.Error("the first part does not have the slot of the whole")
	}
	p.Release() // inert
	if got := s.Stats(); got.InUse != 4 || got.Acquired != 1 {
		t.Errorf("after a split: %d in use, %d acquired", got.InUse, got.Acquired)
	}
	first.Release()
	rest.Release()
	if got := s.Stats(); got.InUse != 0 || got.Acquired != 1 {
		t.Errorf("after the release: %d in use, %d acquired", got.InUse, got.Acquired)
	}
}
