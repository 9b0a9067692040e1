package overload

import (
	"fmt"
	"math"
	"time"
)

// A Bar is a limit for one of our implementations.
type Bar struct {
	What       string
	Got, Limit float64
	AtLeast    bool // Got must be at least Limit; otherwise at most
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
	return fmt.Sprintf("%s %-78s %8.4g  (%s %.4g)", status, b.What, b.Got, most, b.Limit)
}

// results are the results of a scenario, by implementation.
type results struct {
	Scenario
	rows []row
}

// A row is the result of an implementation: medians over the seeds.
type row struct {
	Result
	Impl Implementation
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
// lost and no cap exceeded, and what is special to the scenario.
func (r results) allBars() (all []Bar) {
	if r.Scenario.bars != nil {
		all = r.Scenario.bars(r)
	}
	for _, x := range r.judged() {
		all = append(all,
			Bar{What: x.Impl.Name + ": requests above the cap", Got: float64(x.Overshoot)},
			Bar{What: x.Impl.Name + ": leaked permits", Got: float64(x.Leaked)})
	}
	return all
}

// withinNoise is by how much the goodput of implementations may differ that are equal: they
// serve different requests of the same trace.
const withinNoise = 0.995

func steadyBars(load float64) func(results) []Bar {
	return func(r results) (all []Bar) {
		if load < 2 {
			return nil
		}
		best, of := 0.0, ""
		for _, x := range r.rows {
			if !x.Impl.Ours && x.Goodput > best {
				best, of = x.Goodput, x.Impl.Name
			}
		}
		for _, x := range r.judged() {
			all = append(all,
				Bar{What: x.Impl.Name + ": goodput / capacity", Got: x.Goodput, Limit: 0.95, AtLeast: true},
				Bar{What: x.Impl.Name + ": goodput / that of the best rival, " + of, Got: x.Goodput / best, Limit: withinNoise, AtLeast: true})
			if load == 5 {
				most := WaitBudget + ServiceP99()*12/10
				all = append(all, Bar{What: x.Impl.Name + ": p99 of admitted requests, ms", Got: ms(x.P99), Limit: ms(most)})
			}
			all = append(all, atOnce(x)...)
		}
		return all
	}
}

// atOnce requires rejections without a wait, except of CoDel, which decides after one.
func atOnce(x row) []Bar {
	if x.Impl.Name == CoDel {
		return nil
	}
	return []Bar{{What: x.Impl.Name + ": wait before a rejection, p99, ms", Got: ms(x.RejectP99), Limit: 1}}
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
			all = append(all, Bar{What: x.Impl.Name + ": 0.95 of the goodput after " + c.what + ", ms", Got: ms(x.Recovery(c.after, c.before)), Limit: ms(c.within)})
		}
	}
	return all
}

func fairnessBars(r results) (all []Bar) {
	for _, x := range r.judged() {
		all = append(all, Bar{What: x.Impl.Name + ": weighted Jain", Got: x.Jain, Limit: 0.98, AtLeast: true},
			Bar{What: x.Impl.Name + ": goodput / capacity", Got: x.Goodput, Limit: 0.95, AtLeast: true})
		all = append(all, atOnce(x)...)
	}
	return all
}

func wideBars(r results) (all []Bar) {
	for _, x := range r.judged() {
		all = append(all,
			Bar{What: x.Impl.Name + ": goodput / capacity", Got: x.Goodput, Limit: 0.9, AtLeast: true},
			Bar{What: x.Impl.Name + ": wide requests served / others served", Got: x.WideServed / x.NarrowServed, Limit: 0.5, AtLeast: true})
		all = append(all, atOnce(x)...)
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
