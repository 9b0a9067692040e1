package sematest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An Option changes how [Explore] runs a program.
type Option func(*options)

type options struct {
	schedules int
	steps     int
	seed      uint64
	replay    bool // the schedule of seed alone
	slow      time.Duration
}

// Schedules sets the number of schedules; default 1,000.
func Schedules(n int) Option { return func(o *options) { o.schedules = n } }

// Steps bounds the steps of a schedule; default 10,000. A schedule that does not end
// within them fails.
func Steps(n int) Option { return func(o *options) { o.steps = n } }

// Seed runs the schedule of a seed alone, to replay a failure. The environment variable
// SEMATEST_SEED does the same without a change of the test.
func Seed(seed uint64) Option {
	return func(o *options) { o.seed, o.replay = seed, true }
}

// Slow lets up to d of virtual time pass before some of the steps, so that timeouts of the
// program expire while other goroutines are about to run. Default 0: time passes only
// while every goroutine waits.
func Slow(d time.Duration) Option { return func(o *options) { o.slow = d } }

const seedVariable = "SEMATEST_SEED"

// Explore runs a program under many schedules, each in a testing/synctest bubble of its
// own. It fails the test at the first schedule that deadlocks, does not end, panics, violates
// a condition or fails the test itself, with the steps of that schedule and the seed that
// replays it.
//
// The program creates what its goroutines share, wraps it with [World.Gate],
// [World.Counter] and [World.Mutex], starts them with [World.Go] and returns. The
// operations of what is wrapped are steps, and so is [World.Yield]. Between two steps a
// goroutine is not interrupted.
//
// Replays are exact if the program is deterministic between steps: a select with
// several ready cases and the order of a map are random. Goroutines must not wait for a
// sync.Mutex, a sync.Cond without a bubble, or I/O: synctest cannot see that they wait.
func Explore(t *testing.T, program func(w *World), opts ...Option) {
	t.Helper()
	o := options{schedules: 1000, steps: 10_000}
	for _, opt := range opts {
		opt(&o)
	}
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatalf("sematest: %s=%q: want a number such as 0x2a", seedVariable, text)
		}
		o.seed, o.replay = seed, true
	}
	if o.schedules < 1 || o.steps < 1 {
		t.Fatalf("sematest: %d schedules of %d steps: want at least one schedule and step", o.schedules, o.steps)
	}
	if f := explore(t, program, o); f != nil {
		t.Fatal(f)
	}
}

// explore runs schedules up to the first that fails.
func explore(t *testing.T, program func(w *World), o options) *failure {
	if o.replay {
		return schedule(t, program, o, o.seed)
	}
	for seed := range uint64(o.schedules) {
		if f := schedule(t, program, o, seed); f != nil {
			return f
		}
	}
	return nil
}

// schedule runs the schedule of a seed. Goroutines of a failed schedule that wait for
// something else than a step or the context of the world cannot be ended: then the
// bubble panics, after the failure was noted.
func schedule(t *testing.T, program func(w *World), o options, seed uint64) (failed *failure) {
	defer func() {
		if reason := recover(); reason != nil && failed == nil {
			panic(reason)
		}
	}()
	before := t.Failed()
	synctest.Test(t, func(*testing.T) {
		w := &World{options: o, choose: newChooser(seed)}
		w.ctx, w.cancel = context.WithCancel(context.Background())
		program(w)
		w.drive()
		if t.Failed() && !before {
			w.Errorf("the test failed in this schedule")
		}
		if w.failure != "" {
			failed = &failure{seed, w.failure, w.trace}
		}
	})
	return failed
}

// A failure is a schedule that failed.
type failure struct {
	seed  uint64
	why   string
	trace []string
}

// traceTail bounds the steps in a report. The last ones matter most.
const traceTail = 50

// String returns the report.
func (f *failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sematest: %s\n", f.why)
	first := max(0, len(f.trace)-traceTail)
	fmt.Fprintf(&b, "the last %d of %d steps:\n", len(f.trace)-first, len(f.trace))
	for i, step := range f.trace[first:] {
		fmt.Fprintf(&b, "%6d  %s\n", first+i+1, step)
	}
	fmt.Fprintf(&b, "replay: sematest.Seed(%#x), or %s=%#x in the environment", f.seed, seedVariable, f.seed)
	return b.String()
}
