package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// writeInto replaces the text between the marks of the suite in a file by the
// suite's tables. Plots go into a directory beside it, which has the name of the file.
func (s suite) writeInto(file string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- bench:"+s.Suite+" -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: no marks %q … %q", file, strings.TrimSpace(begin), end)
	}
	text := s.markdown()
	if s.overload != nil {
		plots := strings.TrimSuffix(file, filepath.Ext(file))
		if err := s.overload.WritePlots(plots); err != nil {
			return err
		}
		text = s.overload.Markdown(filepath.Base(plots)) + "\n### Cost of a request\n\n" + text
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644)
}

// markdown returns a table with a line for each scenario and implementation, and another
// one for scenarios that show how long acquires wait. The first implementation of a
// scenario is the one the others are compared with.
func (s suite) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, %s, %s. The last column is how long Sema takes in the same run, as a multiple of the rival.\n\n",
		runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOARCH)
	times := table{{"time", s.time}, {"p99", func(r row) string { return readable(r.P99) }}, {"allocations", s.allocations}}
	if !slices.ContainsFunc(s.Rows, func(r row) bool { return r.P99 != 0 && !r.showsWaits() }) {
		times = slices.Delete(times, 1, 2)
	}
	s.writeTable(&b, times, func(r row) bool { return !r.showsWaits() })
	if slices.ContainsFunc(s.Rows, row.showsWaits) {
		b.WriteString("\nHow long acquires wait, beside the time of an operation. The maximum is the median of those of the rounds.\n\n")
		s.writeTable(&b, table{
			{"time", s.time},
			{"p50", func(r row) string { return readable(r.P50) }},
			{"p99", func(r row) string { return readable(r.P99) }},
			{"p99.9", func(r row) string { return readable(r.P999) }},
			{"max", func(r row) string { return readable(r.Max) }},
		}, row.showsWaits)
	}
	return b.String()
}

// A table has a column for each of some values of a row.
type table []struct {
	name string
	cell func(row) string
}

func (r row) showsWaits() bool { return r.Max != 0 }

// time returns the time of an operation, or what the scenario counts instead.
func (s suite) time(r row) string {
	if s.counts(r) {
		return fmt.Sprintf("%.2f %s", r.Count, s.targets[r.Scenario][0].unit)
	}
	return readable(r.NsOp)
}

func (s suite) allocations(r row) string {
	if s.counts(r) {
		return ""
	}
	return fmt.Sprintf("%.2f", r.AllocsOp)
}

// counts reports whether the scenario of a row measures something other than time.
func (s suite) counts(r row) bool { return r.Count != 0 && len(s.targets[r.Scenario]) == 1 }

// writeTable writes the scenarios whose rows are wanted.
func (s suite) writeTable(b *strings.Builder, t table, wanted func(row) bool) {
	line := func(name string, cell func(i int) string, ratio string) {
		fmt.Fprintf(b, "| %s |", name)
		for i := range t {
			fmt.Fprintf(b, " %s |", cell(i))
		}
		fmt.Fprintf(b, " %s |\n", ratio)
	}
	line("", func(i int) string { return t[i].name }, "Sema / this")
	b.WriteString("|---|" + strings.Repeat("--:|", len(t)+1) + "\n")
	for scenario, rows := range s.byScenario() {
		if !wanted(rows[0]) {
			continue
		}
		line("**"+s.about[scenario]+"**", func(int) string { return "" }, "")
		for _, r := range rows {
			name, ratio := r.Impl, ""
			if strings.HasPrefix(name, "sema") {
				name = "`" + name + "`"
			} else {
				ratio = s.ratio(rows[0], r)
			}
			line(name, func(i int) string { return t[i].cell(r) }, ratio)
		}
	}
}

// ratio returns the ratio of the times, and those of other values that have a target.
func (s suite) ratio(ours, rival row) string {
	text := fmt.Sprintf("%.2f", ours.RatioTo[rival.Impl])
	for _, t := range s.targets[ours.Scenario] {
		if t.value != nil && t.impl == ours.Impl && t.rival == rival.Impl {
			text += fmt.Sprintf("; %s %.2f", t.unit, ours.ratioTo(rival, t.value))
		}
	}
	return text
}

// readable formats a time in a suitable unit; 0 is "".
func readable(ns float64) string {
	switch {
	case ns == 0:
		return ""
	case ns < 1e3:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ms", ns/1e6)
}
