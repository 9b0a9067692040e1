package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestSameSeedGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	render := func(seed uint64) string {
		r := runAll(seed, 24, func(string, int, int) {})
		all := r.markdown()
		for _, c := range r.charts() {
			all += c.svg()
		}
		return all
	}
	first := render(7)
	if render(7) != first {
		t.Error("two runs with one seed differ")
	}
	if render(8) == first {
		t.Error("another seed makes no difference")
	}
}

func TestNobodyIsAdmittedTooMany(t *testing.T) {
	t.Parallel()
	for _, policy := range []policy{sharing, doubling} {
		for seed := range uint64(2) {
			for name, p := range map[string]params{"crowd": crowded(seed, 30), "partition": parted(seed, 30), "overload": base(seed, 30).loaded(1.5)} {
				p.policy = policy
				w := newWorld(p).run()
				if err := w.broken(); err != nil {
					t.Errorf("%s, policy %d, seed %d: %v", name, policy, seed, err)
				}
				for i, e := range w.engines() {
					if err := e.state.Check(); err != nil {
						t.Errorf("%s, policy %d, seed %d: engine %d: %v", name, policy, seed, i, err)
					}
				}
			}
		}
	}
}

func TestABrokenHierarchyIsFound(t *testing.T) {
	t.Parallel()
	p := parted(1, 45)
	p.sabotage = deaf
	w := newWorld(p).run()
	if w.m.over == 0 || w.m.outlived == 0 {
		t.Errorf("a region goes on without the global engine, and that is not found: %d too many, %d outlived", w.m.over, w.m.outlived)
	}
	p = crowded(1, 45)
	p.sabotage = giveLent
	if w = newWorld(p).run(); w.m.overRegion == 0 || w.broken() == nil {
		t.Error("regions give back what is lent, and nobody notices")
	}
}

func TestEverybodyIsServedWhileThereIsEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(base(1, 90)).run()
	served, offered := w.served()
	if w.m.gaveUp > 0 || served < offered*99/100 {
		t.Errorf("%d of %d were served, %d gave up", served, offered, w.m.gaveUp)
	}
	if use := w.utilisation(); use < 0.6 || use > 0.73 {
		t.Errorf("utilisation %.3f, want two thirds", use)
	}
	if w.batchesPerAcquire() > 0.5 {
		t.Errorf("%.3f batches for each acquire: pooling does not pay", w.batchesPerAcquire())
	}
}

func TestACutRegionComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(parted(1, 45)).run()
	dark, end := w.m.timeline[(w.p.faults[0].from+w.p.ttl)/sampleEvery], w.m.timeline[len(w.m.timeline)-1]
	if dark.busy[2] != 0 {
		t.Errorf("%d in use in a region that is cut off for a TTL", dark.busy[2])
	}
	if end.busy[2] < 100 || w.m.ended == 0 {
		t.Errorf("%d in use when it is back, after %d lost sessions", end.busy[2], w.m.ended)
	}
}

func TestTheWheelKeepsTheOrder(t *testing.T) {
	t.Parallel()
	w, rng := newWheel(), rand.New(rand.NewPCG(1, 1))
	filed, last := int32(0), event{who: -1}
	file := func() {
		w.file(event{at: w.now + protocol.Micros(rng.Int64N(3*turn)), who: filed})
		filed++
	}
	for range 1000 {
		file()
	}
	taken := int32(0)
	for e, ok := w.take(100 * turn); ok; e, ok = w.take(100 * turn) {
		if e.at < last.at || e.at != w.now {
			t.Fatalf("event for %d at %d, after one for %d", e.at, w.now, last.at)
		}
		last = e
		taken++
		if filed < 20_000 {
			file()
		}
	}
	if taken != filed {
		t.Errorf("%d events of %d", taken, filed)
	}
	for who := range int32(3) {
		w.file(event{at: w.now, who: who})
	}
	for who := range int32(3) {
		if e, _ := w.take(w.now + 1); e.who != who {
			t.Errorf("%d comes as number %d", e.who, who)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	if even, one := jain([]float64{2, 2, 2, 2}), jain([]float64{5, 0, 0, 0}); even != 1 || one != 0.25 {
		t.Errorf("Jain's index is %v and %v, want 1 and 0.25", even, one)
	}
	h := &histogram{}
	for i := range protocol.Micros(1000) {
		h.add(i * ms)
	}
	if median := h.quantile(0.5); median < 480 || median > 500 {
		t.Errorf("the median of 0 to 999 ms is %v", median)
	}
	for _, value := range []uint64{0, 31, 32, 63, 64, 100, 1 << 20, 1<<40 + 12345} {
		if low := uint64(lowest(bucket(value))); low > value || float64(value-low) > float64(value)/31 {
			t.Errorf("%d is in the bucket of %d", value, low)
		}
	}
	if s := count(1234567.4); s != "1,234,567" {
		t.Errorf("count writes %s", s)
	}
}

func TestPlotsAreXML(t *testing.T) {
	t.Parallel()
	c := chart{title: "a < b & c", xLog: true, yLog: true, series: []series{{name: "x", points: []point{{1, 0}, {10, 5}, {100, 700}}}}}
	for decoder := xml.NewDecoder(strings.NewReader(c.svg())); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if svg := c.svg(); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Error(svg)
	}
}

func TestFiguresGoBetweenTheMarks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("above\n"+beginMark+"old\n"+endMark+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeBetween(file, "new\n"); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	if want := []byte("above\n" + beginMark + "new\n" + endMark + "\nbelow\n"); !bytes.Equal(text, want) {
		t.Errorf("%q, want %q", text, want)
	}
	if os.WriteFile(file, []byte("no marks"), 0o600) != nil || writeBetween(file, "new\n") == nil {
		t.Error("a file without marks was written")
	}
}
