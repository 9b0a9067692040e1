package classic_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

// safe are the strategies that cannot deadlock.
var safe = []classic.Strategy{classic.LowerFirst, classic.OneLeftHanded, classic.Arbiter, classic.BothOrNone}

// dinner returns a program: n philosophers, each of which eats a number of times.
func dinner(n, meals int, s classic.Strategy) func(w *sematest.World) {
	return func(w *sematest.World) {
		table := explorable(w, n, s)
		eating := make([]bool, n)
		eaten := 0
		w.Always("no two neighbours eat", func() bool {
			for i := range eating {
				if eating[i] && eating[(i+1)%n] {
					return false
				}
			}
			return true
		})
		w.Finally("all have eaten", func() bool { return eaten == n*meals })
		for i := range n {
			w.Go(fmt.Sprint("philosopher ", i), func(ctx context.Context) {
				for range meals {
					p, err := table.Seat(i).Acquire(ctx, 1)
					if err != nil {
						return
					}
					w.Yield() // it may have waited for the arbiter, which is not a step
					eating[i] = true
					w.Yield()
					eating[i] = false
					eaten++
					p.Release()
				}
			})
		}
	}
}

// explorable returns a table whose forks are steps. AcquireAll would not join the queues of
// wrapped semaphores, so BothOrNone has plain ones.
func explorable(w *sematest.World, n int, s classic.Strategy) *classic.Table {
	if s == classic.BothOrNone {
		return classic.NewTable(n, s)
	}
	forks := make([]sema.Gate, n)
	for i := range forks {
		forks[i] = w.Gate(sema.New(1, sema.Name(fmt.Sprint("fork ", i))))
	}
	return classic.NewTableOf(s, forks...)
}

// TestTable_SafeStrategiesNeverDeadlock explores thousands of schedules of each.
func TestTable_SafeStrategiesNeverDeadlock(t *testing.T) {
	t.Parallel()
	for _, s := range safe {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprint(s, " ", n), func(t *testing.T) {
				t.Parallel()
				sematest.Explore(t, dinner(n, 2, s), sematest.Schedules(schedules))
			})
		}
	}
}

// TestTable_CanTwoStillDeadlockWithAnArbiter is a question of many exams. With n-1
// seats: no, also if the table has only two forks.
func TestTable_CanTwoStillDeadlockWithAnArbiter(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 4} {
		sematest.Explore(t, dinner(n, 2, classic.Arbiter), sematest.Schedules(schedules/3))
	}
}

// TestTable_AnArbiterOfAllSeatsDeadlocks: an arbiter that admits n is the naive table.
func TestTable_AnArbiterOfAllSeatsDeadlocks(t *testing.T) {
	t.Parallel()
	wantExploredDeadlock(t, func(w *sematest.World) {
		const n = 4
		seats, table := sema.New(n), explorable(w, n, classic.Naive)
		for i := range n {
			w.Go(fmt.Sprint("philosopher ", i), func(ctx context.Context) {
				_ = sema.Do(ctx, seats, 1, func(ctx context.Context) error {
					return sema.Do(ctx, table.Seat(i), 1, func(context.Context) error { return nil })
				})
			})
		}
	})
}

// TestTable_NaiveDeadlockIsFoundByExploration runs the exploration of the naive table, which
// must fail, in another process.
func TestTable_NaiveDeadlockIsFoundByExploration(t *testing.T) {
	t.Parallel()
	wantExploredDeadlock(t, dinner(5, 1, classic.Naive))
}

// wantExploredDeadlock fails unless Explore finds a deadlock of the program. Explore fails its
// test then, so the test binary runs that test alone in another process.
func wantExploredDeadlock(t *testing.T, program func(*sematest.World)) {
	t.Helper()
	const variable = "CLASSIC_EXPLORES"
	if os.Getenv(variable) != "" {
		sematest.Explore(t, program)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "sematest: deadlock") || !strings.Contains(string(out), "replay: sematest.Seed") {
		t.Errorf("the exploration ended with %v, want a deadlock:\n%s", err, out)
	}
}

// TestTable_NaiveDeadlockIsReported lets all philosophers take their left fork.
func TestTable_NaiveDeadlockIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		var j journal
		slow := sema.ObserverFunc(func(e sema.Event) { // all take the left fork before any takes the right one
			if e.Kind == sema.EventAcquired {
				time.Sleep(time.Millisecond)
			}
		})
		table := classic.NewTable(n, classic.Naive, sema.Name("naive"), sema.Observe(&j), sema.Observe(slow), sema.Diagnose(sema.DiagnoseFull))
		ctx, cancel := context.WithCancel(t.Context())
		for i := range n {
			go func() {
				if p, err := table.Seat(i).Acquire(ctx, 1); err == nil {
					t.Errorf("philosopher %d eats", i)
					p.Release()
				}
			}()
		}
		found := deadlocks(&j)
		if len(found) != 1 {
			t.Fatalf("%d deadlocks reported, want 1", len(found))
		}
		for i := range n {
			if want := fmt.Sprintf("naive fork %d", i); !strings.Contains(found[0], want) {
				t.Errorf("no %q in the report:\n%s", want, found[0])
			}
		}
		cancel()
		synctest.Wait()
		if n := len(j.find(sema.EventInverted)); n != 1 {
			t.Errorf("%d inverted orders reported, want 1", n)
		}
	})
}

// TestTable_SafeStrategiesRaiseNoAlarm runs the others with full diagnostics.
func TestTable_SafeStrategiesRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	for _, s := range safe {
		synctest.Test(t, func(t *testing.T) {
			const n = 5
			var j journal
			table := classic.NewTable(n, s, sema.Name(fmt.Sprint("safe ", s)), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
			for i := range n {
				go func() {
					for range 3 {
						err := sema.Do(t.Context(), table.Seat(i), 1, func(context.Context) error {
							time.Sleep(2 * time.Second)
							return nil
						})
						wantErr(t, err, nil)
					}
				}()
			}
			time.Sleep(time.Hour)
			if found := slices.Concat(j.find(sema.EventDeadlocked), j.find(sema.EventInverted)); len(found) != 0 {
				t.Errorf("%v: false alarms: %+v", s, found)
			}
		})
	}
}

func TestTable_SeatsConform(t *testing.T) {
	t.Parallel()
	for _, s := range append([]classic.Strategy{classic.Naive}, safe...) {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			sematest.Check(t, sematest.Traits{FIFO: true, Binary: true}, func(*testing.T, int64) sema.Gate {
				return classic.NewTable(3, s, sema.Name("table")).Seat(1)
			})
		})
	}
}

// TestTable_AFailureReturnsWhatWasTaken: a philosopher that gets one fork and not the other
// holds none.
func TestTable_AFailureReturnsWhatWasTaken(t *testing.T) {
	t.Parallel()
	for _, s := range append([]classic.Strategy{classic.Naive}, safe...) {
		synctest.Test(t, func(t *testing.T) {
			table := classic.NewTable(4, s)
			neighbour := mustAcquire(t, table.Seat(1), 1)
			_, err := table.Seat(0).TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrFull)
			ctx, cancel := context.WithCancelCause(t.Context())
			for _, i := range []int{0, 2} {
				waiting := acquiring(ctx, table.Seat(i), 1)
				waiting.wantWaiting(t)
			}
			cancel(errCause)
			synctest.Wait()
			for _, i := range []int{3} { // both forks of seat 3 were wanted by its neighbours
				mustAcquire(t, table.Seat(i), 1).Release()
			}
			neighbour.Release()
			for i := range table.Seats() {
				mustAcquire(t, table.Seat(i), 1).Release()
			}
		})
	}
}

func TestTable_Describes(t *testing.T) {
	t.Parallel()
	table := classic.NewTable(5, classic.Arbiter, sema.Name("dinner"))
	if got, want := table.String(), `table "dinner": 5 philosophers, Arbiter`; got != want || table.Name() != "dinner" {
		t.Errorf("%s, want %s", got, want)
	}
	if got := fmt.Sprint(classic.Naive, classic.BothOrNone, classic.Strategy(9)); got != "Naive BothOrNone Strategy(9)" {
		t.Error(got)
	}
	_, err := table.Seat(2).Acquire(t.Context(), 2)
	if want := `sema: "dinner seat 2": acquire 2 of 1 permits: larger than capacity`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for name, f := range map[string]func(){
		"one philosopher": func() { classic.NewTable(1, classic.Naive) },
		"one fork":        func() { classic.NewTableOf(classic.Naive, sema.New(1)) },
		"a nil fork":      func() { classic.NewTableOf(classic.Naive, sema.New(1), nil) },
		"no strategy":     func() { classic.NewTable(2, 9) },
		"a seat too many": func() { table.Seat(5) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
