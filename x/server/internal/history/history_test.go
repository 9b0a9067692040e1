package history_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

var start = time.Unix(1_800_000_000, 0)

func open(t testing.TB, directory string, now time.Time) *history.History {
	t.Helper()
	h, err := history.Open(directory, 0, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func sample(i int) history.Sample {
	return history.Sample{InUse: int64(i % 7), Effective: 8, Waiting: int64(i % 3), Grants: int64(i)}
}

// record records n samples of a semaphore from a tick on.
func record(h *history.History, from, n int) (now time.Time) {
	for i := from; i < from+n; i++ {
		now = start.Add(time.Duration(i) * history.Fine)
		h.Record(now, map[string]history.Sample{"db": sample(i)})
	}
	return now
}

func wantCurve(t *testing.T, c history.Curve, from, n int) {
	t.Helper()
	if len(c.Points) != n {
		t.Fatalf("%d points, want %d", len(c.Points), n)
	}
	for i, p := range c.Points {
		if want := start.Add(time.Duration(from+i) * history.Fine); !p.At.Equal(want) || p.Sample != sample(from+i) {
			t.Fatalf("point %d: %+v, want %+v at %v", i, p, sample(from+i), want)
		}
	}
}

func TestHistory_Curve(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	now := record(h, 0, 500)
	wantCurve(t, h.Curve("db", start, now), 0, 500)
	wantCurve(t, h.Curve("db", now.Add(-15*time.Minute), now), 319, 181)
	if c := h.Curve("other", start, now); len(c.Points) != 0 {
		t.Errorf("%d points", len(c.Points))
	}
}

// TestHistory_Expires checks that an hour of fine samples and a day of coarse ones are kept.
func TestHistory_Expires(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	now := record(h, 0, 28*720)
	fine, coarse := h.Curve("db", now.Add(-time.Hour), now), h.Curve("db", now.Add(-24*time.Hour), now)
	if n := len(fine.Points); n != 721 {
		t.Errorf("%d fine points", n)
	}
	if n := len(coarse.Points); n < 1440 || n > 1442 || coarse.Step != time.Minute {
		t.Errorf("%d coarse points", n)
	}
	if p := coarse.Points[10]; p.InUse != 6 || p.Waiting != 2 || p.Grants < 12*100 {
		t.Errorf("a coarse point has the peaks and the sums: %+v", p)
	}
	if all := h.Curve("db", start, now); all.Points[0].At.Before(now.Add(-25*time.Hour - 2*time.Minute)) {
		t.Error("an old point is kept")
	}
}

// TestHistory_SemaphoreEndsAndReturns checks the gap of a semaphore that was deleted for a while.
func TestHistory_SemaphoreEndsAndReturns(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	at := func(i int) time.Time { return start.Add(time.Duration(i) * history.Fine) }
	for i := range 10 {
		samples := map[string]history.Sample{"always": {}}
		if i < 3 || i > 6 {
			samples["db"] = history.Sample{}
		}
		h.Record(at(i), samples)
	}
	for range 2 {
		var ticks []int
		for _, p := range h.Curve("db", start, at(9)).Points {
			ticks = append(ticks, int(p.At.Sub(start)/history.Fine))
		}
		if want := []int{0, 1, 2, 7, 8, 9}; !slices.Equal(ticks, want) {
			t.Errorf("ticks %v, want %v", ticks, want)
		}
		if n := len(h.Curve("always", start, at(9)).Points); n != 10 {
			t.Errorf("%d points of an idle semaphore", n)
		}
		h.Close()
		h = open(t, directory, at(9))
	}
}

// afterKill returns a directory with the files that a kill of the process would leave.
func afterKill(t *testing.T, directory string) string {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	return left
}

// TestHistory_SurvivesAKill checks that another history continues with the files of one that was
// not closed.
func TestHistory_SurvivesAKill(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	killed := open(t, directory, start)
	now := record(killed, 0, 200)
	killed.Note(history.Event{At: now, Semaphore: "db", Kind: "drain", By: "ops"})
	h := open(t, afterKill(t, directory), now.Add(time.Second))
	wantCurve(t, h.Curve("db", start, now), 0, 200)
	now = record(h, 200, 100)
	wantCurve(t, h.Curve("db", start, now), 0, 300)
	if e := h.Events("db", start); len(e) != 1 || e[0].By != "ops" {
		t.Errorf("events %v", e)
	}
	if n := len(h.Curve("db", start.Add(-24*time.Hour), now).Points); n < 20 {
		t.Errorf("%d coarse points", n)
	}
}

// TestHistory_AnyDirectory checks that a directory may have a name with characters of patterns.
func TestHistory_AnyDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a[1]", "b[", "c^"} {
		directory := filepath.Join(t.TempDir(), name)
		h := open(t, directory, start)
		now := record(h, 0, 100)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open(t, directory, now.Add(time.Second))
		if n := len(h.Curve("db", start, now).Points); n != 100 {
			t.Errorf("in %s: %d points, want 100", name, n)
		}
	}
}

// TestHistory_DamagedFile checks that a record that was written in part ends the file, and that no
// damage makes a server fail.
func TestHistory_DamagedFile(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	now := record(h, 0, 50)
	h.Close()
	files, _ := filepath.Glob(filepath.Join(directory, "fine-*"))
	whole, err := os.ReadFile(files[0])
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(files[0], whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := history.Open(directory, 0, now)
		if err != nil {
			t.Fatalf("%d bytes: %v", cut, err)
		}
		for i, p := range again.Curve("db", start, now).Points {
			if p.Sample != sample(i) {
				t.Fatalf("%d bytes: point %d is %+v", cut, i, p)
			}
		}
		again.Close()
	}
	for range 200 {
		broken := slices.Clone(whole)
		broken[15+rand.IntN(len(broken)-15)] ^= 1 << rand.IntN(8)
		_ = os.WriteFile(files[0], broken, 0o600)
		if again, err := history.Open(directory, 0, now); err != nil {
			t.Fatal(err)
		} else {
			for i, p := range again.Curve("db", start, now).Points {
				if p.Sample != sample(i) {
					t.Fatalf("point %d of a damaged file is %+v", i, p)
				}
			}
			again.Close()
		}
	}
}

func view(h *history.History, at time.Time, s history.Sample) {
	h.View("db", at, func() history.Sample { return s })
}

// TestHistory_ViewedCountsOnce checks that each grant is in one point, at the time at which it was
// noticed.
func TestHistory_ViewedCountsOnce(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	for i := range 10 { // a grant each second, and a sample of each second in the middle
		now := start.Add(time.Duration(i) * history.Fine)
		for s := 1; s < 5 && i >= 4 && i < 8; s++ {
			view(h, now.Add(time.Duration(s-5)*time.Second), history.Sample{Grants: 1, Failures: 2})
		}
		h.Record(now, map[string]history.Sample{"db": {Grants: 5, Failures: 10}})
	}
	points := h.Curve("db", start, start.Add(time.Minute)).Points
	var sum history.Sample
	for _, p := range points {
		sum.Grants, sum.Failures = sum.Grants+p.Grants, sum.Failures+p.Failures
		if p.Grants == 0 {
			t.Errorf("%v: no grants", p.At)
		}
	}
	if len(points) != 26 || sum.Grants != 50 || sum.Failures != 100 {
		t.Errorf("%d points with %d grants and %d failures, want 26, 50 and 100", len(points), sum.Grants, sum.Failures)
	}
}

// TestHistory_Viewed checks the samples of a second, which replace nothing.
func TestHistory_Viewed(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	now := record(h, 0, 12)
	for i := range 10 {
		view(h, now.Add(time.Duration(i-10)*time.Second+100*time.Millisecond), history.Sample{InUse: 1})
	}
	if n := len(h.Curve("db", start, now).Points); n != 22 {
		t.Errorf("%d points", n)
	}
	now = record(h, 12, 240)
	if n := len(h.Curve("db", start, now).Points); n != 252 {
		t.Errorf("%d points: those of a second are kept for 15 minutes", n)
	}
}

func TestHistory_EventsAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	h.Note(history.Event{At: start, Semaphore: "db", Kind: "drain"})
	for i := range 10_000 {
		h.Note(history.Event{At: start.Add(time.Duration(i)), Semaphore: "noisy", Kind: "configure", Detail: fmt.Sprint(i)})
	}
	if n := len(h.Events("noisy", start)); n > 100 || len(h.Events("db", start)) != 1 {
		t.Errorf("%d events of one semaphore", n)
	}
}

// TestHistory_Budget records a day of 2,000 busy semaphores: memory stays within the budget, and
// the time of the processor is reported.
func TestHistory_Budget(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a day of samples of 2,000 semaphores")
	}
	h := open(t, "", start)
	m := busyDay(h, 2000, 26*time.Hour)
	t.Logf("%d bytes by its own count, %d in the heap; %v a sample of 2,000 semaphores: %.3f %% of a core", m.bytes, m.heap, m.each, 100*m.each.Seconds()/history.Fine.Seconds())
	if m.bytes > history.Budget || m.heap > history.Budget*5/4 {
		t.Errorf("%d MiB, %d in the heap, budget %d", m.bytes>>20, m.heap>>20, history.Budget>>20)
	}
	if n := len(h.Curve("s-7", m.now.Add(-time.Hour), m.now).Points); n < 600 {
		t.Errorf("%d fine points are left", n)
	}
	if n := len(h.Curve("s-7", m.now.Add(-24*time.Hour), m.now).Points); n < 1200 {
		t.Errorf("%d coarse points are left", n)
	}
	runtime.KeepAlive(h)
}

type measured struct {
	now         time.Time
	bytes, heap int64
	each        time.Duration
}

// busyDay records samples of semaphores that all change with each sample.
func busyDay(h *history.History, semaphores int, span time.Duration) (m measured) {
	r := rand.New(rand.NewPCG(1, 2))
	samples := make(map[string]history.Sample, semaphores)
	names := make([]string, semaphores)
	for i := range names {
		names[i] = fmt.Sprintf("s-%d", i)
		samples[names[i]] = history.Sample{Effective: 64}
	}
	before := heapBytes()
	ticks := int(span / history.Fine)
	var spent time.Duration
	for i := range ticks {
		for _, name := range names {
			s := samples[name]
			s.InUse = min(64, max(0, s.InUse+r.Int64N(9)-4))
			s.Waiting = max(0, s.Waiting+r.Int64N(5)-2)
			s.Grants, s.Failures = r.Int64N(500), r.Int64N(3)
			s.HeadAge = time.Duration(r.ExpFloat64() * float64(time.Second))
			s.WaitP50, s.WaitP99 = jitter(r, s.WaitP50, 20*time.Millisecond), jitter(r, s.WaitP99, time.Second)
			s.HoldP50, s.HoldP99 = jitter(r, s.HoldP50, 200*time.Millisecond), jitter(r, s.HoldP99, 2*time.Second)
			samples[name] = s
		}
		m.now = start.Add(time.Duration(i) * history.Fine)
		began := time.Now()
		h.Record(m.now, samples)
		spent += time.Since(began)
	}
	m.each, m.bytes, m.heap = spent/time.Duration(ticks), h.Bytes(), heapBytes()-before
	return m
}

func jitter(r *rand.Rand, d, usual time.Duration) time.Duration {
	if d == 0 {
		d = usual
	}
	return time.Duration(float64(d)*0.95 + float64(usual)*0.05*(0.5+r.Float64()))
}

func heapBytes() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
