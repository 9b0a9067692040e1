package advice_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/advice"
)

// busy returns facts of a semaphore on which 8 permits are in use on average.
func busy() advice.Facts {
	return advice.Facts{
		Capacity: 16, InUse: 8, Period: 5 * time.Minute, Arrivals: 40, Hold: 200 * time.Millisecond, Holds: 12_000, Waits: 12_000,
		WaitP99: time.Millisecond, HoldP50: 190 * time.Millisecond, HoldP99: 400 * time.Millisecond, OldestHold: 300 * time.Millisecond,
		UsualHold: 200 * time.Millisecond, Past: 24 * time.Hour, Peak: 15,
	}
}

func kinds(a advice.Advice) (all []string) {
	for _, f := range a.Findings {
		all = append(all, f.Kind)
	}
	return all
}

func TestOf_LittlesLaw(t *testing.T) {
	t.Parallel()
	a := advice.Of(busy())
	if !a.Sized || math.Abs(a.Load-8) > 1e-9 || a.Needed != 10 || len(kinds(a)) != 0 {
		t.Errorf("%+v", a)
	}
	f := busy()
	f.Weight = 3
	if a := advice.Of(f); math.Abs(a.Load-24) > 1e-9 || a.Needed != 30 {
		t.Errorf("weight 3: %+v", a)
	}
}

// TestOf_TooFewHolds checks the text for one hold, which needs no plural.
func TestOf_TooFewHolds(t *testing.T) {
	t.Parallel()
	f := busy()
	f.Holds, f.Period = 1, 300*time.Second
	const want = "too few holds have ended to compute with means: 1 in the last 5m0s, want 20"
	if a := advice.Of(f); a.Sized || a.Why != want {
		t.Errorf("%+v, want %s", a, want)
	}
}

// TestOf_PollsAreNoArrivals checks a caller that tries to acquire in a loop.
func TestOf_PollsAreNoArrivals(t *testing.T) {
	t.Parallel()
	f := busy()
	f.Rejected = 10_000
	if a := advice.Of(f); a.Needed != 10 || !strings.Contains(a.Note, "1e+04 acquires a second were rejected at once") {
		t.Errorf("%+v", a)
	}
	if a := advice.Of(busy()); a.Note != "" {
		t.Errorf("%+v", a)
	}
}

// TestWait_ErlangC compares with values of published tables.
func TestWait_ErlangC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		arrivals, servers float64
		hold, want        time.Duration
	}{
		{1, 2, time.Second, 333 * time.Millisecond},                // load 1 on 2 servers: C = 1/3
		{0.5, 1, time.Second, time.Second},                         // M/M/1: ρ/(μ-λ) = 0.5/0.5
		{2, 3, time.Second, 444 * time.Millisecond},                // load 2 on 3: C = 4/9
		{10, 10.5, 900 * time.Millisecond, 602 * time.Millisecond}, // load 9 on 10: C = 0.6687
	} {
		got, ok := advice.Wait(c.arrivals, c.hold, c.servers)
		if diff := got - c.want; !ok || diff < -2*time.Millisecond || diff > 2*time.Millisecond {
			t.Errorf("%v on %v: %v, want %v", c.arrivals, c.servers, got, c.want)
		}
	}
	if _, ok := advice.Wait(3, time.Second, 3); ok {
		t.Error("a queue with as much work as servers has no mean wait")
	}
	if w, ok := advice.Wait(1000, time.Second, 100_000); !ok || w != 0 {
		t.Errorf("%v", w)
	}
}

func TestOf_ExpectedWaits(t *testing.T) {
	t.Parallel()
	a := advice.Of(busy())
	var last time.Duration = math.MaxInt64
	for i, e := range a.Expected {
		if i == 0 && (e.Capacity != 8 || !e.Endless) {
			t.Errorf("at half of the capacity the queue grows: %+v", e)
		}
		if !e.Endless && e.Wait > last {
			t.Errorf("the wait rises with the capacity: %+v", a.Expected)
		}
		if !e.Endless {
			last = e.Wait
		}
	}
}

func TestOf_Findings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*advice.Facts)
		want   string
	}{
		"slow dependency":      {func(f *advice.Facts) { f.HoldP50, f.Hold = time.Second, time.Second; f.Capacity = 100 }, advice.Slow},
		"slow, saturated":      {func(f *advice.Facts) { f.HoldP50 = time.Second; f.WaitP99 = 5 * time.Second }, advice.Slow},
		"leak":                 {func(f *advice.Facts) { f.OldestHold = 2 * time.Hour }, advice.Leak},
		"too few":              {func(f *advice.Facts) { f.Arrivals = 200 }, advice.TooFew},
		"above 80 %":           {func(f *advice.Facts) { f.Arrivals = 70 }, advice.TooFew},
		"empty":                {func(f *advice.Facts) { *f = advice.Facts{Capacity: 4, Past: 2 * time.Hour} }, advice.Unused},
		"capacity unused":      {func(f *advice.Facts) { f.Peak = 2 }, advice.TooMany},
		"full without figures": {func(f *advice.Facts) { *f = advice.Facts{Capacity: 4, InUse: 4, Waiting: 9} }, advice.Saturate},
	} {
		f := busy()
		c.change(&f)
		if a := advice.Of(f); len(a.Findings) == 0 || a.Findings[0].Kind != c.want || c.want != advice.Unused && len(a.Findings) > 1 && a.Findings[0].Kind == a.Findings[1].Kind {
			t.Errorf("%s: %+v", name, a.Findings)
		}
	}
	for name, change := range map[string]func(*advice.Facts){
		"a long batch among long ones": func(f *advice.Facts) { f.OldestHold = 3 * time.Second },
		"unknown baseline":             func(f *advice.Facts) { f.UsualHold = 0; f.HoldP50 = time.Second },
		"just started":                 func(f *advice.Facts) { *f = advice.Facts{Capacity: 4, Past: time.Minute} },
	} {
		f := busy()
		change(&f)
		if a := advice.Of(f); len(a.Findings) > 0 {
			t.Errorf("%s: %+v", name, a.Findings)
		}
	}
}

// TestOf_ReportsWhatIsUnknown checks few holds, and rates.
func TestOf_ReportsWhatIsUnknown(t *testing.T) {
	t.Parallel()
	for _, f := range []advice.Facts{{Capacity: 4, Holds: 3, Period: time.Minute}, {Capacity: 4, Rate: true, Holds: 1000}} {
		if a := advice.Of(f); a.Sized || a.Why == "" {
			t.Errorf("%+v", a)
		}
	}
}
