package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

func note(h *history.History, at time.Time, semaphore, by string) {
	h.Note(history.Event{At: at, Semaphore: semaphore, Kind: "resize", By: by, Detail: fmt.Sprint(at.Unix())})
}

// away makes every write to a directory fail, and back ends that.
func away(t *testing.T, directory string) (back func()) {
	t.Helper()
	elsewhere := directory + ".elsewhere"
	if err := os.Rename(directory, elsewhere); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(elsewhere, directory); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHistory_FailedWritesAreRepeated checks that samples and events of a time at which the
// directory could not be written are there after a kill.
func TestHistory_FailedWritesAreRepeated(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "history")
	h := open(t, directory, start)
	now := record(h, 0, 70)
	note(h, now, "db", "before")
	if err := h.Flush(); err != nil {
		t.Fatal(err)
	}
	back := away(t, directory)
	history.CloseFiles(h) // a write to an open file would succeed
	now = record(h, 70, 80)
	note(h, now, "db", "during")
	note(h, now, "db", "during")
	if err := h.Flush(); err == nil || h.Err() == nil || !strings.Contains(err.Error(), directory) {
		t.Errorf("error %v while the directory is away", err)
	}
	back()
	if err := h.Flush(); err != nil || h.Err() != nil {
		t.Errorf("error %v after the directory was moved back", err)
	}
	note(h, now, "db", "after")
	now = record(h, 150, 10)
	again := open(t, afterKill(t, directory), now)
	if e := again.Events("db", start); len(e) != 4 || e[1].By != "during" || e[3].By != "after" {
		t.Errorf("events %v", e)
	}
	// The files of a segment that ended meanwhile are incomplete; the others are complete.
	points := again.Curve("db", start, now).Points
	if n := len(points); n < 100 {
		t.Errorf("%d points of 160", n)
	}
	for _, p := range points {
		if want := sample(int(p.At.Sub(start) / history.Fine)); p.Sample != want {
			t.Fatalf("point %+v, want %+v", p, want)
		}
	}
	if p := points[len(points)-1]; !p.At.Equal(now) {
		t.Errorf("the last point is of %v, want %v", p.At, now)
	}
}

// TestHistory_EventsFileIsBounded checks the file of the events, and that it has what is kept.
func TestHistory_EventsFileIsBounded(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	path := filepath.Join(directory, "events")
	var most int64
	for i := range 20_000 {
		note(h, start.Add(time.Duration(i)*time.Millisecond), "db", "ops")
		if i%100 != 0 {
			continue
		}
		if err := h.Flush(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
	}
	if most > 200<<10 {
		t.Errorf("%d KiB for 100 events", most>>10)
	}
	again := open(t, afterKill(t, directory), start.Add(time.Minute))
	if e := again.Events("db", start); len(e) != 100 || !e[99].At.Equal(start.Add(19_999*time.Millisecond)) {
		t.Errorf("%d events", len(e))
	}
}

// TestHistory_EventsFileIsReplacedAsAWhole checks that a kill during a rewrite of the events loses
// none, and that a file which cannot be read is not overwritten.
func TestHistory_EventsFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	note(h, start, "db", "ops")
	h.Close()
	path := filepath.Join(directory, "events")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(path+".new", whole[:20], 0o600)
	if e := open(t, afterKill(t, directory), start).Events("db", start); len(e) != 1 {
		t.Errorf("events %v after a rewrite that was killed", e)
	}
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Open(directory, 0, start); err == nil {
		t.Error("a file that cannot be read counts as empty")
	}
}

// TestHistory_OneServerPerDirectory checks that a second server changes nothing in the directory,
// and that its error has the next step.
func TestHistory_OneServerPerDirectory(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	first := open(t, directory, start)
	now := record(first, 0, 10)
	_, err := history.Open(directory, 0, now)
	if err == nil {
		t.Fatal("two servers use one directory")
	}
	for _, want := range []string{directory, fmt.Sprint("process ", os.Getpid()), "stop that server", "another directory"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
	now = record(first, 10, 10)
	first.Close()
	wantCurve(t, open(t, directory, now).Curve("db", start, now), 0, 20)
}

// TestHistory_OperatorsDoNotPushOutEachOther checks that an operator with many semaphores keeps
// the events of another one.
func TestHistory_OperatorsDoNotPushOutEachOther(t *testing.T) {
	t.Parallel()
	h := open(t, "", start)
	note(h, start, "db", "ops")
	h.Note(history.Event{At: start, Kind: "restart"})
	for i := range 20_000 {
		note(h, start.Add(time.Duration(i)*time.Millisecond), fmt.Sprintf("t/%d", i%1000), "tenant")
	}
	if e := h.Events("db", start); len(e) != 2 {
		t.Errorf("events %v, want the resize and the restart", e)
	}
	for i := range 10 { // the tenant has the most
		note(h, start.Add(time.Minute), fmt.Sprintf("u/%d", i), "late")
	}
	kept := map[string]int{}
	for _, e := range h.AllEvents() {
		kept[e.By]++
	}
	if kept["late"] != 10 || kept["ops"] != 1 || kept[""] != 1 {
		t.Errorf("events by operator: %v", kept)
	}
	if n := len(h.AllEvents()); n > 4096 || n < 4000 {
		t.Errorf("%d events", n)
	}
}

// TestHistory_ClockStepsBack checks that the history goes on after a step of the clock, in the
// same process and after a restart.
func TestHistory_ClockStepsBack(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	record(h, 0, 700)
	view(h, start.Add(3500*time.Second), history.Sample{})
	now := record(h, 100, 50) // back by 50 minutes
	wantCurve(t, h.Curve("db", start, now), 0, 150)
	if n := len(h.Curve("db", start.Add(-24*time.Hour), now).Points); n != 13 {
		t.Errorf("%d coarse points, want those of 12.5 minutes", n)
	}
	view(h, now.Add(time.Second), history.Sample{InUse: 1})
	if all := h.Curve("db", start, now.Add(time.Second)).Points; all[len(all)-1].InUse != 1 || len(all) != 151 {
		t.Errorf("%d points: the samples of a second have stopped", len(all))
	}
	wantCurve(t, open(t, afterKill(t, directory), now).Curve("db", start, now), 0, 150)

	// Two ticks are waited for: that loses less.
	now = record(h, 148, 12)
	wantFine(t, h, now, 160)
}

func wantFine(t *testing.T, h *history.History, now time.Time, n int) {
	t.Helper()
	seen := map[time.Time]bool{}
	for _, p := range h.Curve("db", start, now).Points {
		seen[p.At] = true
	}
	if len(seen) < n {
		t.Errorf("%d points, want %d", len(seen), n)
	}
}

// TestHistory_ClockOfThePastAtTheStart checks that a machine whose clock is wrong until it is
// synchronised loses nothing.
func TestHistory_ClockOfThePastAtTheStart(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	h := open(t, directory, start)
	now := record(h, 0, 100)
	h.Close()
	h = open(t, directory, start.Add(-1000*time.Hour))
	record(h, -200_000, 3)
	h.Close()
	wantCurve(t, open(t, directory, now).Curve("db", start, now), 0, 100)
}
