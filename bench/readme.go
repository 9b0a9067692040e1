package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// writeInto replaces the text between the marks of the suite in a file by the
// suite's tables.
func (s suite) writeInto(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- bench:"+s.Suite+" -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: no marks %q … %q", file, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(file, []byte(before+begin+s.markdown()+end+after), 0o644)
}

// markdown returns a table with a line for each scenario and implementation.
// The first implementation of a scenario is the one the others are compared
// with.
func (s suite) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, %s, %s. The last column is how long Sema takes in the same run, as a multiple of the rival.\n\n",
		runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOARCH)
	b.WriteString("| | time | p99 | allocations | Sema / this |\n|---|--:|--:|--:|--:|\n")
	for scenario, rows := range s.byScenario() {
		fmt.Fprintf(&b, "| **%s** | | | | |\n", s.about[scenario])
		for _, r := range rows {
			name, ratio := r.Impl, ""
			if strings.HasPrefix(name, "sema") {
				name = "`" + name + "`"
			} else {
				ratio = fmt.Sprintf("%.2f", rows[0].RatioTo[r.Impl])
			}
			time, allocations := readable(r.NsOp), fmt.Sprintf("%.2f", r.AllocsOp)
			if r.Count != 0 && len(s.targets[scenario]) == 1 { // the scenario measures something other than time
				time, allocations = fmt.Sprintf("%.2f %s", r.Count, s.targets[scenario][0].unit), ""
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, time, readable(r.P99), allocations, ratio)
		}
	}
	return b.String()
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
