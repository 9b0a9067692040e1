package overload

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Bar is a limit for one of our implementations.
type Bar struct {
	What       string
	Got, Limit float64
	AtLeast    bool    // Got must be at least Limit; otherwise at most
	Low, High  float64 // of all seeds
}

// Met reports whether the limit is met.
func (b Bar) Met() bool {
	if b.AtLeast {
		return b.Got >= b.Limit
	}
	return b.Got <= b.Limit
}

// String returns the bar in one line.
func (b Bar) String() string {
	status, most := "ok  ", "at most"
	if !b.Met() {
		status = "MISS"
	}
	if b.AtLeast {
		most = "at least"
	}
	return fmt.Sprintf("%s %-78s %8.4g  (%s %.4g; seeds %s)", status, b.What, b.Got, most, b.Limit, b.spread())
}

// spread returns the range of the values of all seeds, as text.
func (b Bar) spread() string {
	if b.Low == b.High {
		return "equal"
	}
	return fmt.Sprintf("%.4g – %.4g", b.Low, b.High)
}

// atLeast and atMost return the bar of a value: its median over the seeds. worst returns that
// of a value whose worst counts.
func (x row) atLeast(limit float64, what string, value func(Result) float64) Bar {
	b := x.atMost(limit, what, value)
	b.AtLeast = true
	return b
}

func (x row) atMost(limit float64, what string, value func(Result) float64) Bar {
	values := x.values(value)
	return Bar{What: x.Impl.Name + ": " + what, Limit: limit, Got: medianOf(values, func(v float64) float64 { return v }), Low: slices.Min(values), High: slices.Max(values)}
}

func (x row) worst(limit float64, what string, value func(Result) float64) Bar {
	b := x.atMost(limit, what, value)
	b.Got = b.High
	return b
}

// values returns a value of each seed.
func (x row) values(value func(Result) float64) (all []float64) {
	for _, r := range x.seeds {
		all = append(all, value(r))
	}
	return all
}

// results are the results of a scenario, by implementation.
type results struct {
	Scenario
	rows []row
}

// A row is the result of an implementation: medians over the seeds, see middle.
type row struct {
	Result
	Impl  Implementation
	seeds []Result
}

// judged returns the rows that bars apply to.
func (r results) judged() (all []row) {
	for _, x := range r.rows {
		if x.Impl.Ours {
			all = append(all, x)
		}
	}
	return all
}

// allBars returns what the scenario requires: of all implementations of ours that no permit is
// lost and no cap exceeded, that rejections come at once, and what is special to the scenario.
func (r results) allBars() (all []Bar) {
	if r.Scenario.bars != nil {
		all = r.Scenario.bars(r)
	}
	for _, x := range r.judged() {
		if x.Impl.Name != CoDel { // which decides after a wait
			all = append(all, x.atMost(1, "wait before a rejection, p99, ms", func(r Result) float64 { return ms(r.RejectP99) }))
		}
		all = append(all,
			x.worst(0, "requests above the cap", func(r Result) float64 { return float64(r.Overshoot) }),
			x.worst(0, "leaked permits", func(r Result) float64 { return float64(r.Leaked) }))
	}
	return all
}

func goodputOf(r Result) float64 { return r.Goodput }

// againstRivals requires as much goodput as each rival has, seed by seed. The bar is that of
// the best rival.
func (r results) againstRivals(x row) Bar {
	var worst Bar
	for _, rival := range r.rows {
		if rival.Impl.Ours {
			continue
		}
		theirs, next := rival.values(goodputOf), 0
		b := x.atLeast(1, "goodput / that of the best rival", func(r Result) float64 {
			next++
			return r.Goodput / theirs[next-1]
		})
		if worst.What == "" || b.Got < worst.Got {
			worst = b
		}
	}
	return worst
}

func steadyBars(load float64) func(results) []Bar {
	return func(r results) (all []Bar) {
		if load < 2 {
			return nil
		}
		for _, x := range r.judged() {
			all = append(all, x.atLeast(0.95, "goodput / capacity", goodputOf), r.againstRivals(x))
			if load == 5 {
				all = append(all, x.atMost(ms(WaitBudget+ServiceP99()*12/10), "p99 of admitted requests, ms", func(r Result) float64 { return ms(r.P99) }))
			}
		}
		return all
	}
}

// A recovery is a time after which the goodput has to be what is possible, within a time.
type recovery struct {
	what          string
	after, before time.Duration
	within        time.Duration
}

var (
	stepRecoveries = []recovery{
		{"the step begins", changeFrom, changeTo, time.Second},
		{"the step ends", changeTo, changeEnd, time.Second},
	}
	slowdownRecoveries = []recovery{{"the slowdown ends", changeTo, changeEnd, 3 * time.Second}}
)

func recoveryBars(r results) (all []Bar) {
	for _, x := range r.judged() {
		for _, c := range r.Recoveries {
			all = append(all, x.worst(ms(c.within), "0.95 of the goodput after "+c.what+", ms", func(r Result) float64 { return ms(r.recovery(c.after, c.before)) }))
		}
	}
	return all
}

func fairnessBars(r results) (all []Bar) {
	for _, x := range r.judged() {
		all = append(all,
			x.atLeast(0.98, "weighted Jain", func(r Result) float64 { return r.Jain }),
			x.atLeast(0.95, "goodput / capacity", goodputOf))
	}
	return all
}

func wideBars(r results) (all []Bar) {
	for _, x := range r.judged() {
		all = append(all,
			x.atLeast(0.9, "goodput / capacity", goodputOf),
			x.atLeast(0.5, "wide requests served / others served", func(r Result) float64 { return r.WideServed / r.NarrowServed }))
	}
	return all
}

func ms(d time.Duration) float64 {
	if d == never {
		return math.Inf(1)
	}
	return float64(d) / float64(time.Millisecond)
}

func (s *Suite) breakerBars() (all []Bar) {
	for _, x := range s.breakers {
		if x.ours {
			all = append(all, Bar{What: x.name + ": wedged breakers", Got: float64(x.wedged)})
		}
	}
	return all
}
