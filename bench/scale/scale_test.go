package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestRunAll_SameSeedGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	render := func(seed uint64) string {
		r := runAll(seed, 24, func(string, int, int) {})
		all := r.markdown()
		for _, c := range r.charts() {
			all += c.SVG()
		}
		return all
	}
	first := render(7)
	if render(7) != first {
		t.Error("two runs with the same seed differ")
	}
	if render(8) == first {
		t.Error("runs with different seeds are equal")
	}
}

func TestWorld_NeverExceedsTheCapacity(t *testing.T) {
	t.Parallel()
	for _, policy := range []policy{sharing, doubling} {
		for seed := range uint64(2) {
			for name, p := range map[string]params{"demand peak": demandPeak(seed, 30), "partition": partitioned(seed, 30), "overload": base(seed, 30).loaded(1.5)} {
				p.policy = policy
				w := newWorld(p).run()
				if err := w.violation(); err != nil {
					t.Errorf("%s, policy %d, seed %d: %v", name, policy, seed, err)
				}
				for i, e := range w.stores() {
					if err := e.state.Check(); err != nil {
						t.Errorf("%s, policy %d, seed %d: store %d: %v", name, policy, seed, i, err)
					}
				}
			}
		}
	}
}

func TestWorld_DetectsInjectedBugs(t *testing.T) {
	t.Parallel()
	p := partitioned(1, 45)
	p.injectedBug = ignoresLease
	w := newWorld(p).run()
	if w.m.overAdmitted == 0 || w.m.outlived == 0 {
		t.Errorf("a region that ignores its lease is not detected: %d over the capacity, %d outlived", w.m.overAdmitted, w.m.outlived)
	}
	p = demandPeak(1, 45)
	p.injectedBug = releasesLent
	if w = newWorld(p).run(); w.m.overAdmittedRegion == 0 || w.violation() == nil {
		t.Error("regions that release what is lent are not detected")
	}
}

func TestWorld_ServesAllCallersBelowCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(base(1, 90)).run()
	served, offered := w.served()
	if w.m.timedOut > 0 || served < offered*99/100 {
		t.Errorf("%d of %d were served, %d gave up", served, offered, w.m.timedOut)
	}
	if use := w.utilisation(); use < 0.6 || use > 0.73 {
		t.Errorf("utilisation %.3f, want two thirds", use)
	}
	if w.batchesPerAcquire() > 0.5 {
		t.Errorf("%.3f batches per acquire, want at most 0.5", w.batchesPerAcquire())
	}
}

func TestRegion_RecoversFromAPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(partitioned(1, 45)).run()
	dark, end := w.m.timeline[(w.p.faults[0].from+w.p.ttl)/sampleEvery], w.m.timeline[len(w.m.timeline)-1]
	if dark.busy[2] != 0 {
		t.Errorf("%d in use in a region that has been cut off for a TTL", dark.busy[2])
	}
	if end.busy[2] < 100 || w.m.ended == 0 {
		t.Errorf("%d in use after the region rejoined, %d lost sessions", end.busy[2], w.m.ended)
	}
}

func TestWheel_KeepsTheOrder(t *testing.T) {
	t.Parallel()
	w, rng := newWheel(), rand.New(rand.NewPCG(1, 1))
	scheduled, last := int32(0), event{index: -1}
	file := func() {
		w.schedule(event{at: w.now + protocol.Micros(rng.Int64N(3*wheelSpan)), index: scheduled})
		scheduled++
	}
	for range 1000 {
		file()
	}
	popped := int32(0)
	for e, ok := w.pop(100 * wheelSpan); ok; e, ok = w.pop(100 * wheelSpan) {
		if e.at < last.at || e.at != w.now {
			t.Fatalf("event for %d at %d, after one for %d", e.at, w.now, last.at)
		}
		last = e
		popped++
		if scheduled < 20_000 {
			file()
		}
	}
	if popped != scheduled {
		t.Errorf("popped %d events of %d", popped, scheduled)
	}
	for index := range int32(3) {
		w.schedule(event{at: w.now, index: index})
	}
	for index := range int32(3) {
		if e, _ := w.pop(w.now + 1); e.index != index {
			t.Errorf("popped event %d, want %d", e.index, index)
		}
	}
}

func TestMeasures_ComputeFigures(t *testing.T) {
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
}

func TestWriteBetween_ReplacesTheTextBetweenTheMarks(t *testing.T) {
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
