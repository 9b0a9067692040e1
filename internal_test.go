package sema

import (
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func TestSizesThatMatter(t *testing.T) {
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

func TestStackHintStaysInRange(t *testing.T) {
	for log := uint8(1); log <= 8; log++ {
		if h := stackHint(64 - log); h >= 1<<log {
			t.Errorf("hint %d of %d", h, 1<<log)
		}
	}
}

func TestContentionProfileStaysBounded(t *testing.T) {
	profile := pprof.NewProfile("sema.test.contention")
	totals := waitTotals{bySite: map[string]*SiteWait{}, quantum: time.Millisecond}
	var entered time.Duration
	for range 200 {
		totals.enter(profile, time.Second, 0)
		entered += time.Second
	}
	if n := profile.Count(); n > contentionKeys || n < contentionKeys/4 {
		t.Errorf("%d keys", n)
	}
	// The keys left stand for all the time that was entered, by and large.
	if told := time.Duration(profile.Count()) * totals.quantum; told < entered*9/10 || told > entered*11/10 {
		t.Errorf("the profile says %v of %v", told, entered)
	}
}

func TestDebugLevelsAreParsed(t *testing.T) {
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
			t.Errorf("%v does not survive", l)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	for k := EventQueued; k <= EventMismatched; k++ {
		if strings.HasPrefix(k.String(), "EventKind(") || k.String() == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestTestBinariesAreRecognised(t *testing.T) {
	for _, args := range [][]string{
		{"/tmp/go-build1/b001/sema.test"}, {`C:\b001\sema.test.exe`}, {"debug", "-test.v"}, {"debug", "--test.run=X"}, nil,
	} {
		if !looksLikeTest(args) {
			t.Errorf("%q is a test binary", args)
		}
	}
	for _, args := range [][]string{{"server"}, {"/usr/bin/test", "-v", "latest.txt"}} {
		if looksLikeTest(args) {
			t.Errorf("%q is no test binary", args)
		}
	}
	if !inTest() {
		t.Error("this is a test binary")
	}
}

// Names may be made up as a program runs, of what is held and of what is wanted.
func TestOrderGraph_IsBounded(t *testing.T) {
	g := orderGraph{edges: map[string]map[string]edge{}}
	for i := range 3 * mostOrders {
		g.note(hold{name: "global"}, fmt.Sprint("tenant ", i), stack{1})
		g.note(hold{name: fmt.Sprint("job ", i)}, "disk", stack{1})
	}
	edges := 0
	for _, wanted := range g.edges {
		edges += len(wanted)
	}
	if edges > mostOrders {
		t.Errorf("%d edges are remembered, want %d at most", edges, mostOrders)
	}
}
