package overload

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTrace_IsThatOfItsSeed(t *testing.T) {
	t.Parallel()
	l := Load{For: 10 * time.Second, Phases: []Phase{{0, 0.5}, {5 * time.Second, 2}}, Wide: 0.05, Cancel: 0.5, Storm: time.Second}
	a := l.Trace(1)
	if !slices.Equal(a, l.Trace(1)) || slices.Equal(a, l.Trace(2)) {
		t.Error("a trace depends on something else than its seed")
	}
	var before, after, wide float64
	for _, r := range a {
		work := float64(r.work()) / float64(5*time.Second*Slots)
		if r.At < 5*time.Second {
			before += work
		} else {
			after += work
		}
		if r.Cost > 1 {
			wide++
		}
		if r.Cancel <= 0 || r.Cancel > time.Second-r.At%time.Second {
			t.Fatalf("the client of %+v does not leave in the storm", r)
		}
	}
	if math.Abs(before-0.5) > 0.05 || math.Abs(after-2) > 0.1 || math.Abs(wide/float64(len(a))-0.05) > 0.01 {
		t.Errorf("load %.2f, then %.2f; %.3f wide", before, after, wide/float64(len(a)))
	}
}

func TestRun_EveryImplementationServesAndLosesNothing(t *testing.T) {
	t.Parallel()
	// An adapter that releases too little would show its library as worse than it is.
	for _, i := range Implementations() {
		t.Run(i.Name, func(t *testing.T) {
			t.Parallel()
			if raceDetector && strings.HasPrefix(i.Name, "failsafe priority") {
				t.Skip("the usage tracker of failsafe-go v0.9.8 has a data race: RecordUsage against TotalUsage")
			}
			synctest.Test(t, func(t *testing.T) {
				r := Run(Load{For: time.Second, Phases: []Phase{{0, 0.5}}}, 1, i)
				if r.Admitted < 600 || r.Goodput < 0.35 || r.Leaked != 0 || r.Overshoot != 0 {
					t.Errorf("%+v", r)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				r := Run(Load{For: time.Second, Classes: hogAndTenants(0.15), Wide: 0.05, Cancel: 0.5, Storm: 100 * time.Millisecond}, 1, i)
				if r.Admitted == 0 || r.Leaked != 0 || r.Goodput > 1 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestFairness_CountsBackloggedClasses(t *testing.T) {
	t.Parallel()
	classes := []Class{{"a", 1, 0}, {"b", 2, 0}, {"c", 4, 0}}
	served := func(class string, admitted, of int) (all []record) {
		for i := range of {
			all = append(all, record{Request: Request{At: 2 * time.Second, Service: time.Millisecond, Class: class, Cost: 1}, admitted: i < admitted})
		}
		return all
	}
	all := slices.Concat(served("a", 10, 100), served("b", 20, 100), served("c", 5, 5))
	if jain, shares := fairness(classes, all); math.Abs(jain-1) > 1e-9 || math.Abs(shares["b"]-20.0/35) > 1e-9 {
		t.Errorf("index %v, shares %v: c was not backlogged", jain, shares)
	}
	if jain, _ := fairness(classes, append(all, served("c", 0, 100)...)); jain > 0.9 {
		t.Errorf("index %v though c had an eighth of its share", jain)
	}
}

func TestResult_RecoversWhenItStaysGood(t *testing.T) {
	t.Parallel()
	r := Result{Timeline: make([]Bucket, 80)} // 4 s
	for i := range r.Timeline {
		r.Timeline[i] = Bucket{Offered: 0.5, Good: 0.5}
		if i >= 20 && i < 30 || i >= 40 && i < 45 { // nothing is served from 1 s to 1.5 s, nor from 2 s to 2.25 s
			r.Timeline[i].Good = 0
		}
	}
	if d := r.recovery(time.Second, 4*time.Second); d != 1250*time.Millisecond {
		t.Errorf("recovered after %v, want 1.25 s", d)
	}
	bad := Result{Timeline: []Bucket{20: {}}}
	for i := range bad.Timeline {
		bad.Timeline[i].Offered = 2
	}
	if d := (row{seeds: []Result{r, bad}}).Recovery(0, time.Second); d != never {
		t.Errorf("recovered after %v, want never", d)
	}
}

func TestBreakOnce_ShowsAWedgedBreaker(t *testing.T) {
	t.Parallel()
	wedged := map[string]int{}
	for _, b := range breakers {
		for seed := range uint64(breakerRuns) {
			synctest.Test(t, func(t *testing.T) {
				if breakOnce(b.name, seed).Wedged {
					wedged[b.name]++
				}
			})
		}
	}
	if wedged["sema/admit.Breaker"] > 0 || wedged["gobreaker"] == 0 {
		t.Errorf("wedged: %v", wedged)
	}
}

func TestBar_ShowsWhatIsMissed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bar Bar
		met bool
	}{
		{Bar{Got: 1, Limit: 1}, true}, {Bar{Got: 1.1, Limit: 1}, false}, {Bar{Got: math.Inf(1), Limit: 1}, false},
		{Bar{Got: 1, Limit: 1, AtLeast: true}, true}, {Bar{Got: 0.9, Limit: 1, AtLeast: true}, false}, {Bar{Got: math.NaN(), Limit: 1, AtLeast: true}, false},
	} {
		if test.bar.Met() != test.met {
			t.Errorf("%v", test.bar)
		}
	}
}

func TestRun_CountsOnlyWhatWasServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := Implementation{Name: "admits all", Unbounded: true, Make: func([]Class) Gate {
			return Gate{
				Admit: func(context.Context, string, int64) (func(Ending), error) { return func(Ending) {}, nil },
				InUse: func() int64 { return 0 },
			}
		}}
		r := Run(Load{For: 2 * time.Second, Phases: []Phase{{0, 5}}}, 1, open)
		if r.Goodput > 0.6 || r.Rejected > 0 { // all wait inside until their deadline
			t.Errorf("goodput %v, %d rejected", r.Goodput, r.Rejected)
		}
	})
}

func TestRun_ShedsAtOnceWhatItCannotServe(t *testing.T) {
	t.Parallel()
	// A request that waits for its whole budget and is rejected then, should have been shed at once.
	for _, s := range Scenarios() {
		if s.Name != "hog" && s.Name != "wide" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Load.For = 3 * time.Second
			seeds := make([]Result, 3)
			if raceDetector {
				seeds = seeds[:1] // which take long
			}
			for k := range seeds {
				synctest.Test(t, func(*testing.T) { seeds[k] = Run(s.Load, uint64(k+2), ByName(Plain)) })
			}
			if r := middle(seeds); r.InVain >= 0.01 || r.RejectP99 > time.Millisecond || r.Goodput < 0.9 {
				t.Errorf("%.2f %% waited in vain, rejected after %v, goodput %.3f", 100*r.InVain, r.RejectP99, r.Goodput)
			}
		})
	}
}

func TestResults_ComparesSeedBySeedWithEachRival(t *testing.T) {
	t.Parallel()
	goodputs := func(name string, ours bool, all ...float64) row {
		x := row{Impl: Implementation{Name: name, Ours: ours}}
		for _, g := range all {
			x.seeds = append(x.seeds, Result{Goodput: g})
		}
		return x
	}
	ours := goodputs("ours", true, 0.99, 0.9, 0.95)
	r := results{rows: []row{ours, goodputs("a", false, 0.98, 0.92, 0.94), goodputs("b", false, 0.5, 0.5, 0.5)}}
	if b := r.againstRivals(ours); !b.Met() || b.Low != 0.9/0.92 || b.High != 0.95/0.94 || b.spread() == "equal" {
		t.Errorf("%v, want the ratio to a", b)
	}
	r.rows = append(r.rows, goodputs("c", false, 0.9901, 0.9001, 0.9501))
	if b := r.againstRivals(ours); b.Met() {
		t.Errorf("%v is met though c had more in each seed", b)
	}
}

func TestRun_GoodputEndsWithTheScenario(t *testing.T) {
	t.Parallel()
	// A request that is processed when the scenario ends counts as far as it was: which ones are,
	// is chance, and would be a difference between equal policies.
	synctest.Test(t, func(t *testing.T) {
		l := Load{For: 2 * time.Second, Phases: []Phase{{0, 2}}}
		a, b := Run(l, 1, ByName("x/sync, wait budget")), Run(l, 1, ByName("chi Throttle"))
		if a.Goodput != b.Goodput || a.Goodput > 1 || a.Goodput < 0.99 {
			t.Errorf("goodput %v and %v of queues that are equal", a.Goodput, b.Goodput)
		}
	})
}
