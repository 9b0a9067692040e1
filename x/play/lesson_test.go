package play

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record runs a lesson for some time of a bubble, and returns its events. steps run after
// that time, and the lesson then continues for the same time.
func record(t *testing.T, id string, set Settings, d time.Duration, steps ...func(*Stage)) (events []Event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lesson, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		stage, err := lesson.Start(set, func(e Event) { events = append(events, e) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		for _, step := range steps {
			step(stage)
			time.Sleep(d)
		}
		stage.Stop()
	})
	return events
}

// waits returns for how long each finished wait of a worker at a gate took, and how long the
// unfinished one has taken at the end of the recording.
func waits(events []Event, worker, gate string) (finished []time.Duration, unfinished time.Duration) {
	since := -1.0
	end := 0.0
	for _, e := range events {
		end = e.At
		if e.Worker != worker || e.Gate != gate {
			continue
		}
		switch e.Kind {
		case KindAsked:
			since = e.At
		case KindAcquired:
			finished = append(finished, millis(e.At-since))
			since = -1
		}
	}
	if since >= 0 {
		unfinished = millis(end - since)
	}
	return finished, unfinished
}

func millis(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func count(events []Event, matches func(Event) bool) (n int) {
	for _, e := range events {
		if matches(e) {
			n++
		}
	}
	return n
}

// everySetting calls fn with each value of each setting of a lesson; numbers at their bounds.
func everySetting(l Lesson, fn func(Settings)) {
	fn(nil)
	for _, c := range l.Choices {
		if c.Options == nil {
			fn(Settings{c.ID: strconv.Itoa(c.Least)})
			fn(Settings{c.ID: strconv.Itoa(c.Most)})
		}
		for _, o := range c.Options {
			fn(Settings{c.ID: o.Value})
		}
	}
}

// TestLesson_ConservesPermits checks the events of every lesson with every setting: no gate
// has more permits in use than its capacity, and workers release what they have acquired.
func TestLesson_ConservesPermits(t *testing.T) {
	t.Parallel()
	for _, l := range Lessons() {
		t.Run(l.ID, func(t *testing.T) {
			t.Parallel()
			everySetting(l, func(set Settings) {
				checkConservation(t, l, set, record(t, l.ID, set, 40*time.Second))
			})
		})
	}
}

func checkConservation(t *testing.T, l Lesson, set Settings, events []Event) {
	t.Helper()
	type hold struct{ worker, gate string }
	capacity, inUse, held := map[string]int64{}, map[string]int64{}, map[hold]int64{}
	acquired := 0
	writing := false
	for _, e := range events {
		at := hold{e.Worker, e.Gate}
		switch e.Kind {
		case KindGate:
			capacity[e.Gate] = e.N
		case KindAcquired:
			acquired++
			inUse[e.Gate] += e.N
			held[at] += e.N
			if l.ID == "readers" {
				if writing || e.Class == "writer" && inUse[e.Gate] > 1 {
					t.Errorf("%s %v at %v: %s enters with others", l.ID, set, e.At, e.Worker)
				}
				writing = e.Class == "writer"
				continue
			}
			if l.ID != "buffer" && inUse[e.Gate] > capacity[e.Gate] {
				t.Errorf("%s %v at %v: %d of %d in use at %s", l.ID, set, e.At, inUse[e.Gate], capacity[e.Gate], e.Gate)
			}
		case KindReleased, KindLost:
			inUse[e.Gate] -= e.N
			if held[at] -= e.N; held[at] < 0 {
				t.Errorf("%s %v at %v: %s releases at %s what it does not hold", l.ID, set, e.At, e.Worker, e.Gate)
			}
			writing = false
		case KindLevel:
			if e.N < 0 || e.N > capacity[e.Gate] {
				t.Errorf("%s %v at %v: level %d of %d", l.ID, set, e.At, e.N, capacity[e.Gate])
			}
		case KindFailed:
			t.Errorf("%s %v at %v: %s fails: %s", l.ID, set, e.At, e.Worker, e.Text)
		}
	}
	if acquired == 0 {
		t.Errorf("%s %v: nothing was acquired", l.ID, set)
	}
	if count(events, func(e Event) bool { return e.Caption != "" }) == 0 {
		t.Errorf("%s %v: no captions", l.ID, set)
	}
}

func TestLesson_ShowsTheCodeThatRuns(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"semaphore": "pool.Acquire(ctx, weight)", "buffer": "buffer.Put(ctx, item)", "readers": "classic.NewRWLock(policy)",
		"table": "classic.NewTableOf(strategy, forks...)", "inversion": "locked.Context(ctx)", "rate": "api.Acquire(ctx, cost)", "lease": "r.guard.Admit(fence)",
	} {
		l, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(l.Code, want) || strings.Contains(l.Code, "// code:") || strings.Contains(l.Code, "// end") {
			t.Errorf("%s: want %q and no markers in\n%s", id, want, l.Code)
		}
	}
	if n := len(Lessons()); n != 7 {
		t.Errorf("%d lessons, want 7", n)
	}
}

func TestLesson_RejectsUnknownSettings(t *testing.T) {
	t.Parallel()
	for _, set := range []Settings{{"permits": "0"}, {"permits": "9"}, {"permits": "x"}, {"order": "random"}, {"colour": "red"}} {
		if _, err := semaphoreLesson.Start(set, func(Event) {}); err == nil {
			t.Errorf("%v: no error", set)
		}
	}
	if _, err := Find("none"); err == nil {
		t.Error("no error for an unknown lesson")
	}
}

// TestSemaphore_FairKeepsTheOrderOfArrival leaves out Unfair: whether an arrival overtakes its
// queue depends on the scheduler. The test in a browser shows it.
func TestSemaphore_FairKeepsTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	for order, inOrder := range map[string]bool{"fair": true, "lifo": false} {
		overtaken := overtakings(record(t, "semaphore", Settings{"order": order}, time.Minute))
		if inOrder != (overtaken == 0) {
			t.Errorf("%s: %d acquires out of order", order, overtaken)
		}
	}
}

// overtakings counts the acquires that passed an older waiter. Grants of the same instant
// may be recorded in any order.
func overtakings(events []Event) (n int) {
	var queue []Event
	for i, e := range events {
		switch e.Kind {
		case KindAsked:
			queue = append(queue, e)
		case KindAcquired:
			at := slices.IndexFunc(queue, func(q Event) bool { return q.Worker == e.Worker })
			n += count(queue[:at], func(q Event) bool {
				return q.At < e.At && !slices.ContainsFunc(events[i:], func(later Event) bool {
					return later.Kind == KindAcquired && later.Worker == q.Worker && later.At == e.At
				})
			})
			queue = slices.Delete(queue, at, at+1)
		}
	}
	return n
}

// TestSemaphore_ClassesShareByWeight removes no caller, so both classes always wait.
func TestSemaphore_ClassesShareByWeight(t *testing.T) {
	t.Parallel()
	const free, paid = "free", "paid"
	busy := func(s *Stage) {
		for range 5 {
			for _, class := range []string{free, paid} {
				if err := s.Do("add", Settings{"class": class}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	used := map[string]float64{}
	since := map[string]float64{}
	for _, e := range record(t, "semaphore", Settings{"order": "classes", "permits": "2", "weights": "ones", "free": "1", "paid": "3"}, 2*time.Minute, busy) {
		switch {
		case e.At < 125_000:
		case e.Kind == KindAcquired:
			since[e.Worker] = e.At
		case e.Kind == KindReleased && since[e.Worker] > 0:
			class := paid
			if name := e.Worker[0] - 'A'; name%2 == 0 {
				class = free
			}
			used[class] += e.At - since[e.Worker]
		}
	}
	if ratio := used[paid] / used[free]; ratio < 2.5 || ratio > 3.5 {
		t.Errorf("paid used %.2f times as much as free, want about 3: %v", ratio, used)
	}
}

func TestSemaphore_CommandsChangeIt(t *testing.T) {
	t.Parallel()
	do := func(id string, with Settings) func(*Stage) {
		return func(s *Stage) {
			if err := s.Do(id, with); err != nil {
				t.Errorf("%s %v: %v", id, with, err)
			}
		}
	}
	events := record(t, "semaphore", nil, 5*time.Second,
		do("resize", Settings{"permits": "0"}), do("resize", Settings{"permits": "8"}), do("add", Settings{"weight": "8"}), do("remove", nil), do("add", Settings{"weight": "2"}),
		func(s *Stage) {
			if s.Do("explode", nil) == nil || s.Do("add", Settings{"weight": "9"}) == nil {
				t.Error("no error")
			}
		})
	paused, resumed := 0, 0
	for _, e := range events {
		if e.Kind == KindAcquired && e.At > 5000 {
			if e.At < 10_000 {
				paused++
			} else if e.At < 15_000 {
				resumed++
			}
		}
	}
	if paused != 0 || resumed == 0 {
		t.Errorf("%d acquires while the capacity was 0, %d afterwards", paused, resumed)
	}
	if n := count(events, func(e Event) bool { return e.Kind == KindJoined }); n != 8 {
		t.Errorf("%d workers joined, want 8", n)
	}
	if n := count(events, func(e Event) bool { return e.Kind == KindLeft }); n != 1 {
		t.Errorf("%d workers left, want 1", n)
	}
}

// TestSemaphore_ReportsAWeightThatNeverFits shows the error and the advice of Sema.
func TestSemaphore_ReportsAWeightThatNeverFits(t *testing.T) {
	t.Parallel()
	events := record(t, "semaphore", Settings{"permits": "2"}, 5*time.Second, func(s *Stage) {
		if err := s.Do("add", Settings{"weight": "5"}); err != nil {
			t.Error(err)
		}
	})
	if count(events, func(e Event) bool { return e.Kind == KindFailed && strings.Contains(e.Text, "5") && e.Caption != "" }) != 1 {
		t.Error("the rejection is not shown")
	}
}

// TestBuffer_PassesEachItemOnce checks items and backpressure.
func TestBuffer_PassesEachItemOnce(t *testing.T) {
	t.Parallel()
	for speed, slower := range map[string]string{"producers": "P1", "consumers": "C1"} {
		events := record(t, "buffer", Settings{"speed": speed}, time.Minute)
		put, taken := map[string]int{}, map[string]int{}
		for _, e := range events {
			if e.Kind == KindReleased && e.Worker[0] == 'P' {
				put[e.Text]++
			} else if e.Kind == KindReleased {
				taken[e.Text]++
			}
		}
		for item, n := range taken {
			if n != 1 || put[item] > 1 {
				t.Errorf("%s: item %s was put %d times and taken %d times", speed, item, put[item], n)
			}
		}
		if len(taken) < 30 || len(put)-len(taken) > 4 {
			t.Errorf("%s: %d items put, %d taken", speed, len(put), len(taken))
		}
		finished, _ := waits(events, slower, "buffer")
		longest := time.Duration(0)
		for _, d := range finished {
			longest = max(longest, d)
		}
		if longest < time.Second {
			t.Errorf("%s: %s waited at most %v: no backpressure", speed, slower, longest)
		}
	}
}

// TestReaders_StarveOnlyWhereThePolicyAllowsIt compares the three policies.
func TestReaders_StarveOnlyWhereThePolicyAllowsIt(t *testing.T) {
	t.Parallel()
	longest := func(policy string, workers ...string) (longest time.Duration) {
		events := record(t, "readers", Settings{"policy": policy}, time.Minute)
		for _, w := range workers {
			finished, unfinished := waits(events, w, "lock")
			for _, d := range append(finished, unfinished) {
				longest = max(longest, d)
			}
		}
		noted := count(events, func(e Event) bool { return strings.Contains(e.Caption, "Starvation") })
		if starves := longest > 10*time.Second; starves != (noted > 0) {
			t.Errorf("%s: the longest wait was %v, and %d captions name starvation", policy, longest, noted)
		}
		return longest
	}
	if d := longest("fair", "R1", "R2", "R3", "R4", "W1", "W2"); d > 8*time.Second {
		t.Errorf("FairRW: a wait of %v", d)
	}
	if d := longest("readers", "W1", "W2"); d < 20*time.Second {
		t.Errorf("PreferReaders: writers waited at most %v, want starvation", d)
	}
	if d := longest("writers", "R1", "R2", "R3", "R4"); d < 20*time.Second {
		t.Errorf("PreferWriters: readers waited at most %v, want starvation", d)
	}
}

// TestTable_OnlyNaiveDeadlocks checks that the report of the diagnostics names the forks, and that
// no strategy inherits the orders of acquires of the one before it. Only Naive has orders that close a
// circle; the arbiter keeps its circle open.
func TestTable_OnlyNaiveDeadlocks(t *testing.T) {
	t.Parallel()
	for _, o := range tableLesson.Choices[0].Options {
		events := record(t, "table", Settings{"strategy": o.Value}, 2*time.Minute)
		meals := count(events, func(e Event) bool { return e.Kind == KindDoing && e.Text == "eats" })
		var reports []Event
		for _, e := range events {
			if strings.Contains(e.Caption, "the fork 0") {
				t.Errorf("%s: %q", o.Value, e.Caption)
			}
			if e.Kind == KindReport && e.Text == "deadlock suspected" {
				reports = append(reports, e)
			} else if e.Kind == KindReport && o.Value != "Naive" {
				t.Errorf("%s: reports %q:\n%s", o.Value, e.Text, e.Report)
			}
		}
		if o.Value != "Naive" {
			if len(reports) != 0 || meals < 40 {
				t.Errorf("%s: %d meals, %d deadlocks reported", o.Value, meals, len(reports))
			}
			continue
		}
		if len(reports) != 1 || meals > 10 {
			t.Fatalf("Naive: %d meals, %d deadlocks reported, want 1", meals, len(reports))
		}
		for _, fork := range []string{"fork 0", "fork 1", "fork 2", "fork 3", "fork 4"} {
			if !strings.Contains(reports[0].Report, fork) {
				t.Errorf("no %q in the report:\n%s", fork, reports[0].Report)
			}
		}
	}
}

// TestInversion_InheritanceShortensTheWait measures how long High waits for the lock.
func TestInversion_InheritanceShortensTheWait(t *testing.T) {
	t.Parallel()
	waited := map[string]time.Duration{}
	for _, set := range []string{"off", "on"} {
		finished, _ := waits(record(t, "inversion", Settings{"inheritance": set}, 9*time.Second), "High", "lock")
		if len(finished) != 1 {
			t.Fatalf("%s: High acquired the lock %d times, want once", set, len(finished))
		}
		waited[set] = finished[0]
	}
	if waited["on"] > 2*time.Second || waited["off"] < 5*time.Second {
		t.Errorf("High waited %v with inheritance, %v without", waited["on"], waited["off"])
	}
}

// TestRate_KeepsItsBound checks that any second admits at most burst + rate.
func TestRate_KeepsItsBound(t *testing.T) {
	t.Parallel()
	events := record(t, "rate", Settings{"rate": "2", "burst": "4"}, 30*time.Second, func(s *Stage) {
		if err := s.Do("burst", Settings{"requests": "8"}); err != nil {
			t.Error(err)
		}
	}, func(s *Stage) {
		if err := s.Do("pause", nil); err != nil {
			t.Error(err)
		}
	})
	var at []float64
	for _, e := range events {
		if e.Kind == KindAcquired {
			for range e.N {
				at = append(at, e.At)
			}
		}
	}
	for i := range at {
		if j := i + 6; j < len(at) && at[j]-at[i] < 1000 {
			t.Errorf("7 tokens were spent from %v to %v, want at most 6 a second", at[i], at[j])
		}
		if at[i] > 60_001 && at[i] < 62_990 {
			t.Errorf("granted at %v while paused until 63 s", at[i])
		}
	}
	if len(at) < 100 {
		t.Errorf("%d tokens were spent in 90 s", len(at))
	}
}

// TestLease_GuardRejectsTheLateWrite checks the fences, with and without a guard.
func TestLease_GuardRejectsTheLateWrite(t *testing.T) {
	t.Parallel()
	for guard, rejects := range map[string]bool{"on": true, "off": false} {
		events := record(t, "lease", Settings{"guard": guard}, time.Minute)
		late, rejected := 0, 0
		last, expired := int64(0), map[string]bool{}
		for _, e := range events {
			switch {
			case e.Kind == KindLost:
				expired[e.Worker] = true
			case e.Kind == KindAcquired:
				expired[e.Worker] = false
			case e.Kind == KindWrote:
				if e.N < last {
					late++
				}
				if !e.OK {
					rejected++
				}
				if e.OK == (e.N < last) && rejects || expired[e.Worker] != (e.N < last) {
					t.Errorf("guard %s: %s wrote with fence %d after %d: accepted %v, lease expired %v", guard, e.Worker, e.N, last, e.OK, expired[e.Worker])
				}
				last = max(last, e.N)
			}
		}
		if late < 2 || rejects != (rejected == late) || !rejects && rejected > 0 {
			t.Errorf("guard %s: %d late writes, %d rejected", guard, late, rejected)
		}
	}
}
