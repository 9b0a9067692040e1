package overload

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Suite is the results of all scenarios.
type Suite struct {
	all      []results
	breakers []breakerRow
}

// A breakerRow is the result of a breaker over all seeds.
type breakerRow struct {
	breaker
	runs      int
	wedged    int
	failed    int           // median
	recovered time.Duration // longest
}

// RunAll runs the scenarios whose name contains only, each with as many seeds. bubble runs
// [Once] with the arguments in a process of its own.
func RunAll(seeds int, only string, progress io.Writer, bubble func(result any, args ...string)) *Suite {
	scenarios := slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !strings.Contains(s.Name, only) })
	out := new(Suite)
	for n, s := range scenarios {
		fmt.Fprintf(progress, "[%d/%d] %s: %s\n", n+1, len(scenarios), s.Name, s.About)
		out.all = append(out.all, results{s, runScenario(s, seeds, bubble)})
	}
	if strings.Contains(breakerScenario, only) {
		fmt.Fprintf(progress, "%s: %s\n", breakerScenario, breakerAbout)
		for _, b := range breakers {
			out.breakers = append(out.breakers, runBreaker(b, bubble))
		}
	}
	return out
}

const breakerScenario, breakerAbout = "breaker", "a dependency fails from 3 s to 10 s, and one call in 20 never reports its result"

func runBreaker(b breaker, bubble func(result any, args ...string)) breakerRow {
	var all []BreakerResult
	bubble(&all, breakerScenario, b.name, strconv.Itoa(breakerRuns))
	out := breakerRow{breaker: b, runs: breakerRuns, failed: medianOf(all, func(r BreakerResult) int { return r.Failed })}
	for _, r := range all {
		if r.Wedged {
			out.wedged++
		}
		out.recovered = max(out.recovered, r.Recovered)
	}
	return out
}

func runScenario(s Scenario, seeds int, bubble func(result any, args ...string)) []row {
	measured := make([][]Result, len(s.Of))
	var wg sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for k, i := range s.Of {
		measured[k] = make([]Result, seeds)
		for seed := range seeds {
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				bubble(&measured[k][seed], s.Name, i.Name, strconv.Itoa(seed+1))
			})
		}
	}
	wg.Wait()
	rows := make([]row, len(s.Of))
	for k, i := range s.Of {
		rows[k] = row{middle(measured[k]), i, measured[k]}
	}
	return rows
}

// Once runs a scenario for an implementation with a seed, given as text; or one for a breaker
// with so many seeds. It must be called in a testing/synctest bubble.
func Once(args []string) any {
	seed, err := strconv.ParseUint(args[2], 10, 64)
	must(err)
	if args[0] == breakerScenario {
		var all []BreakerResult
		for i := range seed {
			all = append(all, breakOnce(args[1], i))
		}
		return all
	}
	all := Scenarios()
	k := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == args[0] })
	return Run(all[k].Load, seed, ByName(args[1]))
}

// middle returns the medians of the results, and the worst of what must never happen. Shares
// and timeline are those of the first seed.
func middle(all []Result) Result {
	out := all[0]
	out.Goodput = medianOf(all, func(r Result) float64 { return r.Goodput })
	out.P50 = medianOf(all, func(r Result) time.Duration { return r.P50 })
	out.P99 = medianOf(all, func(r Result) time.Duration { return r.P99 })
	out.P999 = medianOf(all, func(r Result) time.Duration { return r.P999 })
	out.RejectP99 = medianOf(all, func(r Result) time.Duration { return r.RejectP99 })
	out.InVain = medianOf(all, func(r Result) float64 { return r.InVain })
	out.Jain = medianOf(all, func(r Result) float64 { return r.Jain })
	out.WideServed = medianOf(all, func(r Result) float64 { return r.WideServed })
	out.NarrowServed = medianOf(all, func(r Result) float64 { return r.NarrowServed })
	for _, r := range all {
		out.Overshoot, out.Leaked = max(out.Overshoot, r.Overshoot), max(out.Leaked, r.Leaked)
	}
	return out
}

func medianOf[R any, T cmp.Ordered](all []R, value func(R) T) T {
	values := make([]T, len(all))
	for i, r := range all {
		values[i] = value(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
