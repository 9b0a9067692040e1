package overload

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteText prints the results and the bars. It returns how many bars are missed.
func (s *Suite) WriteText(w io.Writer) (missed int) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range s.all {
		fmt.Fprintf(tab, "\n%s\t  %s\n", r.Name, r.About)
		for i, c := range r.columns() {
			if i == 0 {
				fmt.Fprint(tab, "\t")
			}
			fmt.Fprintf(tab, "%s\t", c.name)
		}
		fmt.Fprintln(tab)
		for _, x := range r.rows {
			fmt.Fprintf(tab, "%s\t", x.Impl.Name)
			for _, c := range r.columns() {
				fmt.Fprintf(tab, "%s\t", c.cell(x))
			}
			fmt.Fprintln(tab)
		}
		tab.Flush()
		for _, b := range r.allBars() {
			fmt.Fprintln(w, "   ", b)
			if !b.Met() {
				missed++
			}
		}
	}
	if len(s.breakers) == 0 {
		return missed
	}
	fmt.Fprintf(tab, "\n%s\t  %s\n\tcalls that failed\trecovered after\twedged\t\n", breakerScenario, breakerAbout)
	for _, x := range s.breakers {
		fmt.Fprintf(tab, "%s\t%d\t%s\t%d of %d\t\n", x.name, x.failed, text(x.recovered), x.wedged, x.runs)
	}
	tab.Flush()
	for _, b := range s.breakerBars() {
		fmt.Fprintln(w, "   ", b)
		if !b.Met() {
			missed++
		}
	}
	return missed
}

// A column is a column of a table.
type column struct {
	name string
	cell func(row) string
}

// columns returns the columns that matter in the scenario.
func (r results) columns() []column {
	all := []column{
		{"goodput", func(x row) string { return fmt.Sprintf("%.3f", x.Goodput) }},
		{"p50", func(x row) string { return text(x.P50) }},
		{"p99", func(x row) string { return text(x.P99) }},
		{"p99.9", func(x row) string { return text(x.P999) }},
		{"rejected after, p99", func(x row) string {
			if x.Rejected == 0 {
				return ""
			}
			return text(x.RejectP99)
		}},
		{"waited in vain", func(x row) string { return fmt.Sprintf("%.1f %%", 100*x.InVain) }},
	}
	if len(r.Load.Classes) > 0 {
		all = append(all, column{"weighted Jain", func(x row) string { return fmt.Sprintf("%.3f", x.Jain) }})
	}
	if r.Load.Wide > 0 {
		all = append(all,
			column{"wide served", func(x row) string { return fmt.Sprintf("%.0f %%", 100*x.WideServed) }},
			column{"others served", func(x row) string { return fmt.Sprintf("%.0f %%", 100*x.NarrowServed) }})
	}
	for _, c := range r.Recoveries {
		all = append(all, column{"recovered after " + c.what, func(x row) string { return text(x.Recovery(c.after, c.before)) }})
	}
	return append(all,
		column{"over the cap", func(x row) string {
			if x.Impl.Adapts {
				return ""
			}
			return fmt.Sprint(x.Overshoot)
		}},
		column{"leaked", func(x row) string { return fmt.Sprint(x.Leaked) }})
}

// text formats a time.
func text(d time.Duration) string {
	switch {
	case d == never:
		return "never"
	case d == 0:
		return "0"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", ms(d))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms(d))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
