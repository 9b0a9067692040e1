package tune_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/tune"
)

// slots returns a dependency that serves some calls at a time, each in 10 ms. Others queue
// inside it.
func slots(n int64) func(context.Context) error {
	inside := sema.New(n)
	return func(ctx context.Context) error {
		return sema.Do(ctx, inside, 1, func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
	}
}

// run runs a measurement in virtual time.
func run(t *testing.T, c tune.Config) (r tune.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = tune.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func TestRun_FindsWhatTheDependencyServes(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 2, 3, 8, 12, 40, 100} {
		r := run(t, tune.Config{Work: slots(n)})
		if low := n - n/10 - 1; r.Needed < low || r.Needed > n {
			t.Errorf("%d slots: %d are needed, want about %d; %+v", n, r.Needed, n, r.Steps)
		}
		if r.Proposed < r.Needed+r.Needed/5 || r.Proposed > r.Needed+r.Needed/5+1 {
			t.Errorf("%d slots: proposed %d with %d needed, want 20 %% more", n, r.Proposed, r.Needed)
		}
		if len(r.Steps) > 20 {
			t.Errorf("%d slots: %d steps", n, len(r.Steps))
		}
	}
}

func TestRun_MeasuresThroughputAndDurations(t *testing.T) {
	t.Parallel()
	r := run(t, tune.Config{Work: slots(4), Only: []int64{8, 2}, Each: 10 * time.Second})
	if len(r.Steps) != 2 || r.Steps[0].Capacity != 2 || r.Steps[1].Capacity != 8 {
		t.Fatalf("%+v", r.Steps)
	}
	for i, want := range []struct {
		throughput float64
		took       time.Duration
	}{{200, 10 * time.Millisecond}, {400, 20 * time.Millisecond}} {
		s := r.Steps[i]
		if s.Throughput < 0.99*want.throughput || s.Throughput > 1.01*want.throughput || s.P50 != want.took || s.P99 != want.took {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}

// TestRun_ThroughputThatFalls has a dependency whose calls disturb each other.
func TestRun_ThroughputThatFalls(t *testing.T) {
	t.Parallel()
	var inside atomic.Int64
	r := run(t, tune.Config{Work: func(context.Context) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		over := max(0, n-16)
		time.Sleep(10*time.Millisecond + time.Duration(over*over)*time.Millisecond)
		return nil
	}})
	if r.Needed < 13 || r.Needed > 18 {
		t.Errorf("%d are needed, want about 16; %+v", r.Needed, r.Steps)
	}
}

func TestRun_ExcludesCapacities(t *testing.T) {
	t.Parallel()
	t.Run("that fail", func(t *testing.T) {
		t.Parallel()
		var inside atomic.Int64
		rejected := errors.New("too many connections")
		r := run(t, tune.Config{Work: func(context.Context) error {
			defer inside.Add(-1)
			n := inside.Add(1)
			time.Sleep(10 * time.Millisecond)
			if n > 10 {
				return rejected
			}
			return nil
		}})
		if r.Needed != 9 && r.Needed != 10 || r.Proposed > 12 {
			t.Errorf("needed %d, proposed %d: %s", r.Needed, r.Proposed, r.Why)
		}
		if last := r.Steps[len(r.Steps)-1]; !errors.Is(last.Err, rejected) || last.Excluded == "" {
			t.Errorf("%+v", last)
		}
	})
	t.Run("with a long p99", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Work: slots(8), MaxP99: 10 * time.Millisecond, Only: []int64{4, 8, 9, 16}})
		if r.Needed != 8 || r.Proposed != 8 || !strings.Contains(r.Why, "9 is excluded") {
			t.Errorf("needed %d, proposed %d: %s", r.Needed, r.Proposed, r.Why)
		}
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Work: func(context.Context) error {
			time.Sleep(time.Millisecond)
			return errors.New("down")
		}})
		if r.Needed != 0 || r.Proposed != 0 || !strings.Contains(r.Why, "down") {
			t.Errorf("%+v", r)
		}
	})
}

func TestRun_SlowCallsAreMeasuredForLonger(t *testing.T) {
	t.Parallel()
	r := run(t, tune.Config{Only: []int64{2}, Each: time.Second, Work: func(context.Context) error {
		time.Sleep(700 * time.Millisecond)
		return nil
	}})
	if s := r.Steps[0]; s.Calls < 18 || s.Elapsed < 6*time.Second || s.Elapsed > 10*time.Second {
		t.Errorf("%+v, want 20 calls", s)
	}
}

func TestRun_StillRisesAtTheLargest(t *testing.T) {
	t.Parallel()
	r := run(t, tune.Config{Work: slots(100), Max: 16})
	if r.Needed != 16 || !strings.Contains(r.Why, "raise Max") {
		t.Errorf("needed %d: %s", r.Needed, r.Why)
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		var reported []int64
		r, err := tune.Run(ctx, tune.Config{Work: slots(4), Report: func(s tune.Step) { reported = append(reported, s.Capacity) }})
		if !errors.Is(err, context.DeadlineExceeded) || len(r.Steps) != 2 || len(reported) != 2 || r.Proposed == 0 {
			t.Errorf("%v, reported %v, %+v", err, reported, r)
		}
	})
}

func TestRun_RejectsBadConfigurations(t *testing.T) {
	t.Parallel()
	work := func(context.Context) error { return nil }
	for _, c := range []tune.Config{
		{}, {Work: work, Min: -1}, {Work: work, Min: 5, Max: 4}, {Work: work, Max: 1 << 40}, {Work: work, Each: -1}, {Work: work, MaxP99: -1},
		{Work: work, MaxFailed: 2}, {Work: work, Headroom: -1}, {Work: work, Only: []int64{4, 0}},
	} {
		if _, err := tune.Run(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "tune: ") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func ExampleRun() {
	var r tune.Result
	synctest.Test(new(testing.T), func(t *testing.T) { // virtual time, so that the example is quick
		r, _ = tune.Run(t.Context(), tune.Config{Work: slots(10)}) // call your dependency here
	})
	fmt.Println("needed:", r.Needed, "proposed:", r.Proposed)
	// Output:
	// needed: 10 proposed: 12
}

// TestRun_CallsInFlightAtTheEndCount has a dependency in which one call in five takes
// half a minute if there are more than four at a time. Within the time that a capacity is measured,
// only quick calls end.
func TestRun_CallsInFlightAtTheEndCount(t *testing.T) {
	t.Parallel()
	work := func(fails error) func(context.Context) error {
		var inside, calls atomic.Int64
		return func(context.Context) error {
			defer inside.Add(-1)
			if n := inside.Add(1); n > 4 && calls.Add(1)%5 == 0 {
				time.Sleep(30 * time.Second)
				return fails
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		}
	}
	t.Run("in the p99", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Work: work(nil), Only: []int64{4, 100}, MaxP99: time.Second})
		if s := r.Steps[1]; s.P99 != 30*time.Second || s.Excluded == "" || r.Needed != 4 {
			t.Errorf("needed %d: %+v", r.Needed, s)
		}
	})
	t.Run("in the failures", func(t *testing.T) {
		t.Parallel()
		down := errors.New("timeout")
		r := run(t, tune.Config{Work: work(down), Only: []int64{4, 100}})
		if s := r.Steps[1]; s.Failed < 90 || !errors.Is(s.Err, down) || s.Excluded == "" || r.Needed != 4 {
			t.Errorf("needed %d: %+v", r.Needed, s)
		}
	})
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Work: func(context.Context) error { time.Sleep(time.Second); return errors.New("down") }, Only: []int64{2}})
		if s := r.Steps[0]; s.Excluded != "100 % of the calls fail (down)" {
			t.Errorf("excluded: %s", s.Excluded)
		}
	})
	t.Run("in the throughput, in part", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Only: []int64{10}, Work: func(context.Context) error {
			time.Sleep(3 * time.Second)
			return nil
		}})
		if s := r.Steps[0]; s.Throughput < 3.33 || s.Throughput > 3.34 {
			t.Errorf("%+v, want 10 calls each 3 s", s)
		}
	})
	t.Run("also those that take longer than all else", func(t *testing.T) {
		t.Parallel()
		r := run(t, tune.Config{Only: []int64{2}, Each: time.Second, Work: func(context.Context) error {
			time.Sleep(19 * time.Second)
			return nil
		}})
		if s := r.Steps[0]; s.Calls != 2 || s.P99 != 19*time.Second || s.Throughput < 0.105 || s.Throughput > 0.106 {
			t.Errorf("%+v, want 2 calls each 19 s", s)
		}
	})
}

func TestRun_CallsThatDoNotEndFail(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := run(t, tune.Config{Only: []int64{8}, Each: time.Second, Work: func(ctx context.Context) error {
		if calls.Add(1)%50 == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		time.Sleep(10 * time.Millisecond)
		return nil
	}})
	if s := r.Steps[0]; s.Failed < 5 || s.Failed > 8 || s.Excluded == "" || s.Err == nil || !strings.Contains(s.Err.Error(), "10s") {
		t.Errorf("%+v, want up to 8 calls that did not end", s)
	}
}

func TestRun_EndsWithItsContextWhileCallsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		r, err := tune.Run(ctx, tune.Config{Only: []int64{1}, Each: time.Second, Work: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		if !errors.Is(err, context.DeadlineExceeded) || len(r.Steps) != 0 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
