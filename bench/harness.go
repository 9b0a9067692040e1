package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sema-go/sema/bench/overload"
)

// A scenario is a load under which implementations are compared. All
// implementations run in one process, in turns, for several rounds, so other
// load on the machine affects them alike. A ratio is the median of the rounds'
// ratios.
type scenario struct {
	name    string
	about   string
	impls   []impl
	targets []target // limits for our implementation, printed with the result
	// turns is the number of runs of each implementation in a round; 0: 1. Many short turns
	// meet the same other load, so their ratios vary less.
	turns int
}

// An impl runs a scenario once and returns what it measured.
type impl struct {
	name string
	run  func() sample // nil: what it needs is not installed
}

// A sample is the result of one run: operations, elapsed time and allocations.
type sample struct {
	ops     int
	elapsed time.Duration
	mallocs uint64
	bytes   float64 // allocated per waiter, if the scenario measures that; otherwise 0
	p99     float64 // in nanoseconds, if the scenario times each operation; otherwise 0
	waits   waits   // if the scenario shows the whole distribution; otherwise zero
	spread  float64 // p99/p50, if the scenario measures that; otherwise 0
	count   float64 // of something else, in the unit of the target; otherwise 0
}

// waits are what a distribution of waiting times shows beside its p99, in nanoseconds. The
// maximum is that of one run, so a row has the median of the maxima.
type waits struct {
	P50  float64 `json:"p50_ns,omitempty"`
	P999 float64 `json:"p99_9_ns,omitempty"`
	Max  float64 `json:"max_ns,omitempty"`
}

func (s sample) nsPerOp() float64     { return float64(s.elapsed.Nanoseconds()) / float64(s.ops) }
func (s sample) allocsPerOp() float64 { return float64(s.mallocs) / float64(s.ops) }

// A target is a limit for an implementation: at most limit times the rival or,
// if difference is set, at most limit nanoseconds more than the rival. If value
// is set, it is compared instead of the time, and rival may be empty.
type target struct {
	impl, rival string
	limit       float64
	difference  bool
	value       func(row) float64
	unit        string
}

// A row is the result for one implementation.
type row struct {
	Scenario string  `json:"scenario"`
	Impl     string  `json:"impl"`
	NsOp     float64 `json:"ns_op"`
	AllocsOp float64 `json:"allocs_op"`
	BytesOp  float64 `json:"bytes_waiter,omitempty"`
	P99      float64 `json:"p99_ns,omitempty"`
	waits
	Spread  float64            `json:"p99_p50,omitempty"`
	Count   float64            `json:"count,omitempty"`
	RatioTo map[string]float64 `json:"ratio_to"`
	Rounds  []row              `json:"-"` // the result of each round
}

type suite struct {
	Suite   string `json:"suite"`
	Rows    []row  `json:"rows"`
	targets map[string][]target
	about   map[string]string

	overload *overload.Suite // of suite admit
}

func runSuite(name string, scenarios []scenario, rounds int, progress io.Writer) suite {
	out := suite{Suite: name, targets: map[string][]target{}, about: map[string]string{}}
	for i, sc := range scenarios {
		sc = sc.installed()
		fmt.Fprintf(progress, "[%d/%d] %s: %s\n", i+1, len(scenarios), sc.name, sc.about)
		out.Rows = append(out.Rows, runScenario(sc, rounds)...)
		out.targets[sc.name], out.about[sc.name] = sc.targets, sc.about
	}
	return out
}

// installed returns the scenario without implementations that are not installed, and
// without the targets that name them.
func (sc scenario) installed() scenario {
	missing := func(im impl) bool { return im.run == nil }
	for _, im := range sc.impls {
		if missing(im) {
			sc.targets = slices.DeleteFunc(sc.targets, func(t target) bool { return t.impl == im.name || t.rival == im.name })
		}
	}
	sc.impls = slices.DeleteFunc(sc.impls, missing)
	return sc
}

func runScenario(sc scenario, rounds int) []row {
	samples := make([][]sample, len(sc.impls))
	for _, im := range sc.impls {
		im.run() // warm up pools, stacks and the processor
	}
	for round := range rounds * max(1, sc.turns) {
		for i := range sc.impls {
			k := (i + round) % len(sc.impls) // vary the order of the implementations
			runtime.GC()
			samples[k] = append(samples[k], sc.impls[k].run())
		}
	}
	rows := make([]row, len(sc.impls))
	for i, im := range sc.impls {
		rows[i] = rowOf(sc.name, im.name, samples[i])
		for _, one := range samples[i] {
			rows[i].Rounds = append(rows[i].Rounds, rowOf(sc.name, im.name, []sample{one}))
		}
	}
	for i := range rows {
		for j, other := range rows {
			if i != j {
				rows[i].RatioTo[other.Impl] = rows[i].ratioTo(other, func(r row) float64 { return r.NsOp })
			}
		}
	}
	return rows
}

// rowOf returns the medians of samples.
func rowOf(scenario, impl string, samples []sample) row {
	return row{
		Scenario: scenario, Impl: impl, RatioTo: map[string]float64{},
		NsOp:     medianOf(samples, sample.nsPerOp),
		AllocsOp: medianOf(samples, sample.allocsPerOp),
		BytesOp:  medianOf(samples, func(s sample) float64 { return s.bytes }),
		P99:      medianOf(samples, func(s sample) float64 { return s.p99 }),
		waits: waits{
			P50:  medianOf(samples, func(s sample) float64 { return s.waits.P50 }),
			P999: medianOf(samples, func(s sample) float64 { return s.waits.P999 }),
			Max:  medianOf(samples, func(s sample) float64 { return s.waits.Max }),
		},
		Spread: medianOf(samples, func(s sample) float64 { return s.spread }),
		Count:  medianOf(samples, func(s sample) float64 { return s.count }),
	}
}

// ratioTo returns the median of the rounds' ratios of a value to that of another
// implementation. Other load affects both in a round, and not the medians of both alike.
func (r row) ratioTo(other row, value func(row) float64) float64 {
	ratios := make([]float64, len(r.Rounds))
	for i := range ratios {
		ratios[i] = value(r.Rounds[i]) / value(other.Rounds[i])
	}
	return median(ratios)
}

func medianOf(samples []sample, f func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = f(s)
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// byProcessorTime makes measure return the processor time of the process instead of the
// time elapsed. On a busy machine that is what an operation costs without the other load.
var byProcessorTime bool

// measure times f, which does ops operations.
func measure(ops int, f func()) sample { return measureIn(byProcessorTime, ops, f) }

// measureIn times f in processor time, or in the time elapsed.
func measureIn(inProcessorTime bool, ops int, f func()) sample {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, used := time.Now(), processorTime()
	f()
	elapsed := time.Since(start)
	if inProcessorTime {
		elapsed = processorTime() - used
	}
	runtime.ReadMemStats(&after)
	return sample{ops: ops, elapsed: elapsed, mallocs: after.Mallocs - before.Mallocs}
}

// sampleOf returns the sample of operations that were timed one by one.
func sampleOf(waits []time.Duration) sample {
	slices.Sort(waits)
	s := sample{ops: len(waits), p99: quantile(waits, 0.99)}
	for _, wait := range waits {
		s.elapsed += wait
	}
	return s
}

// withWaits returns the sample with the distribution of the waits of its operations, or of
// some of them.
func (s sample) withWaits(all []time.Duration) sample {
	slices.Sort(all)
	s.p99 = quantile(all, 0.99)
	s.waits = waits{P50: quantile(all, 0.5), P999: quantile(all, 0.999), Max: float64(all[len(all)-1])}
	return s
}

// quantile returns the smallest value that at least the fraction q of the values, which
// are in ascending order, does not exceed.
func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[int(math.Ceil(q*float64(len(sorted))))-1])
}

func (s suite) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}

// writeText prints the rows and, below each scenario, the result for each
// target.
func (s suite) writeText(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for scenario, rows := range s.byScenario() {
		fmt.Fprintf(tab, "\n%s\t\t\t\t\t\t\t\t\t  %s\n", scenario, s.about[scenario])
		fmt.Fprint(tab, "\tns/op\tallocs/op\tbytes\tp50 ns\tp99 ns\tp99.9 ns\tmax ns\tcount\t\n")
		for _, r := range rows {
			fmt.Fprintf(tab, "%s\t%.1f\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Impl, r.NsOp, r.AllocsOp, ifMeasured(r.BytesOp),
				ifMeasured(r.P50), ifMeasured(r.P99), ifMeasured(r.P999), ifMeasured(r.Max), ifMeasured(r.Count))
		}
		tab.Flush()
		for _, b := range s.targets[scenario] {
			fmt.Fprintln(w, "   ", b.evaluate(rows))
		}
	}
	if s.overload != nil {
		s.overload.WriteText(w)
	}
}

func ifMeasured(value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", value)
}

// byScenario yields the rows of each scenario, in order.
func (s suite) byScenario() func(yield func(string, []row) bool) {
	return func(yield func(string, []row) bool) {
		for start := 0; start < len(s.Rows); {
			end := start
			for end < len(s.Rows) && s.Rows[end].Scenario == s.Rows[start].Scenario {
				end++
			}
			if !yield(s.Rows[start].Scenario, s.Rows[start:end]) {
				return
			}
			start = end
		}
	}
}

// evaluate returns a line that shows whether the target was met, and the
// measured value.
func (b target) evaluate(rows []row) string {
	find := func(name string) row {
		i := slices.IndexFunc(rows, func(r row) bool { return r.Impl == name })
		if i < 0 {
			fmt.Fprintf(os.Stderr, "bench: no implementation %q\n", name)
			os.Exit(1)
		}
		return rows[i]
	}
	ours := find(b.impl)
	var got float64
	what := fmt.Sprintf("%s / %s", b.impl, b.rival)
	switch {
	case b.value != nil && b.rival != "":
		got = ours.ratioTo(find(b.rival), b.value)
		what += ", " + b.unit
	case b.value != nil:
		got = b.value(ours)
		what = b.impl + ", " + b.unit
	case b.difference:
		got = ours.NsOp - find(b.rival).NsOp
		what = fmt.Sprintf("%s − %s, ns", b.impl, b.rival)
	default:
		got = ours.RatioTo[b.rival]
	}
	status := "ok  "
	if got > b.limit {
		status = "MISS"
	}
	return fmt.Sprintf("%s %-58s %6.3f  (at most %g)", status, what, got, b.limit)
}
