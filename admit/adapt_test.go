package admit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// An opaque target does not state its capacity.
type opaque struct{ sizes []int64 }

func (o *opaque) Resize(n int64) { o.sizes = append(o.sizes, n) }

// windows reports good results for some windows.
func windows(a *admit.Adapter, n int) {
	for range 11 * n {
		a.Sample(admit.OK, time.Millisecond)
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAdapter_UnknownCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &opaque{}
		var currents []int64
		windows(admit.Adapt(o, admit.DryRun(&admit.AIMD{}, func(current, _ int64) { currents = append(currents, current) })), 3)
		if len(o.sizes) > 0 || len(currents) != 3 {
			t.Errorf("a dry run has resized to %v, and reported %v", o.sizes, currents)
		}
		c := admit.New(admit.Config{Queue: wfq.New(100), Limit: &admit.AIMD{}, Resizes: o, Logger: quiet})
		var held []admit.Admission
		for range 40 {
			held = append(held, mustAdmit(t, c, admit.Request{}))
		}
		for _, a := range held[:20] {
			a.Done(admit.OK)
			time.Sleep(10 * time.Millisecond)
		}
		if len(o.sizes) != 1 || o.sizes[0] < 39 {
			t.Errorf("resized to %v with 40 in flight", o.sizes)
		}
	})
}

// TestAdapter_CountsEveryResult samples so fast that most results are added without a lock.
func TestAdapter_CountsEveryResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var want admit.Window
		var sum time.Duration
		windows := 0
		a := admit.Adapt(&opaque{}, limitFunc(func(w admit.Window) int64 {
			windows++
			want.Mean = sum / time.Duration(want.Calls)
			if (w.Mean - want.Mean).Abs() > time.Microsecond {
				t.Errorf("the mean is %v, want %v", w.Mean, want.Mean)
			}
			if w.Mean = want.Mean; w != want {
				t.Errorf("%+v, want %+v", w, want)
			}
			want, sum = admit.Window{}, 0
			return w.Limit
		}))
		for i := range 20_002 { // two windows
			took := 2 * time.Second // beyond what is added without a lock
			if i%1000 != 0 {
				took = time.Millisecond + time.Duration(i%3)*time.Microsecond
			}
			want.Calls++
			want.Min = time.Millisecond
			sum += took
			a.Sample(admit.OK, took)
			if i%500 == 1 {
				want.Dropped++
				a.Sample(admit.Dropped, time.Hour)
			}
			time.Sleep(10 * time.Microsecond)
		}
		if windows != 2 {
			t.Errorf("%d windows, want 2", windows)
		}
	})
}

// TestAdapter_NoDurationIsNegative samples durations that a clock which was set back has measured.
func TestAdapter_NoDurationIsNegative(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		windows := 0
		a := admit.Adapt(&opaque{}, limitFunc(func(w admit.Window) int64 {
			windows++
			if w.Calls != 11 || w.Min != 0 || w.Mean != 0 {
				t.Errorf("%+v, want 11 calls of 0", w)
			}
			return w.Limit
		}))
		for i := range 11 {
			a.Sample(admit.OK, -time.Hour+time.Duration(i)*time.Second)
			time.Sleep(10 * time.Millisecond)
		}
		if windows != 1 {
			t.Errorf("%d windows, want 1", windows)
		}
	})
}

// TestAdapter_SeesAllPermitsInUse ends the requests of a full queue one at a time. When
// results are sampled, the permits of the request are returned already.
func TestAdapter_SeesAllPermitsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		c := admit.New(admit.Config{Queue: q, Limit: &admit.AIMD{}, Logger: quiet})
		for range 30 {
			a := mustAdmit(t, c, admit.Request{})
			time.Sleep(10 * time.Millisecond)
			a.Done(admit.OK)
		}
		if limit := q.Stats().Capacity; limit < 2 {
			t.Errorf("the limit is %d: it never rises from 1", limit)
		}
	})
}

// TestAdapter_KeepsWhatAnOperatorSets resizes a semaphore by hand between two windows.
func TestAdapter_KeepsWhatAnOperatorSets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(100)
		a := admit.Adapt(s, &admit.AIMD{})
		windows(a, 1)
		s.Resize(10)
		p, err := s.Acquire(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		windows(a, 1)
		if got := s.Stats().Capacity; got != 11 || a.Limit() != 11 {
			t.Errorf("capacity %d, limit %d; want 11: the operator's 10 and one step", got, a.Limit())
		}
		s.Resize(0) // a pause
		windows(a, 2)
		if got := s.Stats().Capacity; got != 0 {
			t.Errorf("capacity %d: the adapter has ended a pause", got)
		}
		p.Release()
	})
}

func TestAdapt_PanicsForInvalidLimits(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for name, l := range map[string]admit.Limit{
		"min above max":   &admit.Vegas{Min: 10, Max: 5},
		"min above 1000":  &admit.Gradient{Min: 2000},
		"negative":        &admit.AIMD{Min: -1},
		"NaN backoff":     &admit.AIMD{Backoff: nan},
		"backoff above 1": &admit.AIMD{Backoff: 1.5},
		"NaN increase":    &admit.AIMD{Increase: nan},
		"in a dry run":    admit.DryRun(&admit.AIMD{Backoff: nan}, func(_, _ int64) {}),
	} {
		if !panics(func() { admit.Adapt(sema.New(1), l) }) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func TestBreaker_LongestDurations(t *testing.T) {
	t.Parallel()
	b := admit.NewBreaker(admit.BreakerConfig{OpenFor: math.MaxInt64}) // not in a bubble: its clock begins before the process did
	b.Trip()
	wantState(t, b, admit.Open)
	if _, err := b.Allow(); err == nil {
		t.Error("a breaker that stays open lets a call pass")
	}
	synctest.Test(t, func(t *testing.T) {
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: math.MaxInt64/2 + 1, MaxOpenFor: math.MaxInt64, Probes: 1, ProbeTimeout: math.MaxInt64})
		b.Trip()
		time.Sleep(math.MaxInt64/2 + 1)
		a, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Allow(); err == nil {
			t.Error("a probe that may take for ever has expired")
		}
		a.Done(admit.Failed, 0)
		wantState(t, b, admit.Open)
	})
}

func TestNewBreaker_PanicsForInvalidRatios(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, config := range []admit.BreakerConfig{{FailureRatio: nan}, {SlowRatio: nan}, {FailureRatio: -1}} {
		if !panics(func() { admit.NewBreaker(config) }) {
			t.Errorf("%+v: no panic", config)
		}
	}
}
