package overload

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Markdown returns the tables of the documentation, with the plots that WritePlots writes
// into a directory of the given name.
func (s *Suite) Markdown(plots string) string {
	var b strings.Builder
	s.writeBars(&b)
	s.writeLoads(&b, plots)
	s.writeChanges(&b, plots)
	s.writeFairness(&b)
	s.writeStorm(&b)
	s.writeUnknown(&b)
	s.writeBreakers(&b)
	return b.String()
}

// find returns the results of a scenario, or nil if it did not run.
func (s *Suite) find(name string) *results {
	for i := range s.all {
		if s.all[i].Name == name {
			return &s.all[i]
		}
	}
	return nil
}

// of returns the row of an implementation.
func (r *results) of(name string) (row, bool) {
	i := slices.IndexFunc(r.rows, func(x row) bool { return x.Impl.Name == name })
	if i < 0 {
		return row{}, false
	}
	return r.rows[i], true
}

// writeBars writes what is required of our implementations: for each requirement the worst of
// them.
func (s *Suite) writeBars(b *strings.Builder) {
	type key struct{ scenario, what string }
	worst := map[key]Bar{}
	var keys []key
	add := func(scenario string, bar Bar) {
		_, what, _ := strings.Cut(bar.What, ": ")
		k := key{scenario, what}
		if strings.HasPrefix(what, "requests above") || strings.HasPrefix(what, "leaked") {
			k.scenario = "all"
		}
		was, found := worst[k]
		if !found {
			keys = append(keys, k)
		}
		if !found || bar.AtLeast == (bar.Got < was.Got) && bar.Got != was.Got {
			worst[k] = bar
		}
	}
	for i := range s.all {
		for _, bar := range s.all[i].allBars() {
			add(s.all[i].Name, bar)
		}
	}
	for _, bar := range s.breakerBars() {
		add(breakerScenario, bar)
	}
	b.WriteString("Required, and the worst of Sema's configurations:\n\n| scenario | | required | measured | of all seeds | |\n|---|---|--:|--:|--:|---|\n")
	for _, k := range keys {
		bar := worst[k]
		sign, met := "≤", "met"
		if bar.AtLeast {
			sign = "≥"
		}
		if !bar.Met() {
			met = "**missed**"
		}
		fmt.Fprintf(b, "| %s | %s | %s %.4g | %.4g | %s | %s |\n", k.scenario, k.what, sign, bar.Limit, bar.Got, bar.spread(), met)
	}
}

// names returns the implementations that a table has rows for: those of the first scenario.
func names(of ...*results) (all []Implementation) {
	for _, r := range of {
		if r != nil {
			return r.Of
		}
	}
	return nil
}

// A cell is a column of a table with a row for each implementation.
type cell struct {
	name string
	of   *results
	text func(row) string
}

// writeRows writes a table with a row for each implementation. Columns of scenarios that did
// not run are left out.
func writeRows(b *strings.Builder, cells []cell) {
	cells = slices.DeleteFunc(cells, func(c cell) bool { return c.of == nil })
	if len(cells) == 0 {
		return
	}
	b.WriteString("|  |")
	for _, c := range cells {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(cells)) + "\n")
	for _, i := range names(cells[0].of) {
		name := i.Name
		if i.Ours {
			name = "`" + name + "`"
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range cells {
			x, _ := c.of.of(i.Name)
			fmt.Fprintf(b, " %s |", c.text(x))
		}
		b.WriteString("\n")
	}
}

func goodput(x row) string { return fmt.Sprintf("%.3f", x.Goodput) }
func rejected(x row) string {
	if x.Rejected == 0 {
		return "none"
	}
	return text(x.RejectP99)
}

func (s *Suite) writeLoads(b *strings.Builder, plots string) {
	var cells []cell
	for _, load := range loads {
		cells = append(cells, cell{fmt.Sprintf("%v ×", load), s.find(steady(load)), goodput})
	}
	b.WriteString("\n### Steady load\n\nGoodput, by offered load: the part of all slot-time that served requests in time.\n\n")
	writeRows(b, cells)
	fmt.Fprintf(b, "\n![Goodput by offered load](%s)\n\nAt five times the capacity:\n\n", path.Join(plots, goodputPlot))
	five := s.find(steady(5))
	writeRows(b, []cell{
		{"p50", five, func(x row) string { return text(x.P50) }},
		{"p99", five, func(x row) string { return text(x.P99) }},
		{"p99.9", five, func(x row) string { return text(x.P999) }},
		{"wait before a rejection, p99", five, rejected},
	})
	fmt.Fprintf(b, "\n![p99 of admitted requests by offered load](%s)\n", path.Join(plots, latencyPlot))
}

func (s *Suite) writeChanges(b *strings.Builder, plots string) {
	step, slow := s.find("step"), s.find("slowdown")
	b.WriteString("\n### A step and a slowdown\n\nHow long until the goodput is 0.95 of what is possible, the longest of all seeds; and the goodput over all 12 s.\n\n")
	var cells []cell
	for _, c := range []struct {
		r  *results
		as string
	}{{step, "10 × step"}, {slow, "4 × slowdown"}} {
		if c.r == nil {
			continue
		}
		for _, rec := range c.r.Recoveries {
			cells = append(cells, cell{"after " + rec.what, c.r, func(x row) string { return text(x.Recovery(rec.after, rec.before)) }})
		}
		cells = append(cells, cell{c.as + ", goodput", c.r, goodput})
	}
	writeRows(b, cells)
	fmt.Fprintf(b, "\n![Goodput while the load is ten times as high](%s)\n![Goodput while requests take four times as long](%s)\n", path.Join(plots, stepPlot), path.Join(plots, slowdownPlot))
}

func (s *Suite) writeFairness(b *strings.Builder) {
	hog, weights, wide := s.find("hog"), s.find("weights"), s.find("wide")
	jain := func(x row) string { return fmt.Sprintf("%.3f", x.Jain) }
	b.WriteString("\n### Tenants, weights and wide requests\n\nThe weighted index of Jain is 1 if each backlogged class gets its share. The hog's fair share is 10 %.\n\n")
	writeRows(b, []cell{
		{"hog + 9: Jain", hog, jain},
		{"share of the hog", hog, func(x row) string { return fmt.Sprintf("%.0f %%", 100*x.Shares["hog"]) }},
		{"slots above the cap", hog, over},
		{"1:2:4: Jain", weights, jain},
		{"shares", weights, func(x row) string {
			return fmt.Sprintf("%.0f:%.0f:%.0f", 100*x.Shares["a"], 100*x.Shares["b"], 100*x.Shares["c"])
		}},
		{"wide served", wide, func(x row) string { return fmt.Sprintf("%.0f %%", 100*x.WideServed) }},
		{"others served", wide, func(x row) string { return fmt.Sprintf("%.0f %%", 100*x.NarrowServed) }},
		{"goodput", wide, goodput},
		{"slots above the cap", wide, over},
	})
	fmt.Fprintf(b, "\nWide requests need %d of the %d slots. Libraries without weights count them as one, and admit more than the slots.\n", WideCost, Slots)
}

// over returns by how much the cap was exceeded.
func over(x row) string {
	if x.Impl.Adapts {
		return "no cap"
	}
	return fmt.Sprint(x.Overshoot)
}

func (s *Suite) writeStorm(b *strings.Builder) {
	storm := s.find("storm")
	b.WriteString("\n### A storm of cancellations\n\nHalf of the clients leave after 20 ms on average, and every 500 ms all that are there.\n\n")
	writeRows(b, []cell{
		{"goodput", storm, goodput},
		{"p99", storm, func(x row) string { return text(x.P99) }},
		{"above the cap", storm, over},
		{"leaked permits", storm, func(x row) string { return fmt.Sprint(x.Leaked) }},
	})
}

func (s *Suite) writeUnknown(b *strings.Builder) {
	two, five := s.find("unknown-2"), s.find("unknown-5")
	b.WriteString("\n### Unknown capacity\n\nLimits that adapt, over 30 s. They start at 20 and may rise to 200, or to what the library sets by default; the service has 16 slots.\n\n")
	writeRows(b, []cell{
		{"2 ×: goodput", two, goodput},
		{"p50", two, func(x row) string { return text(x.P50) }},
		{"p99", two, func(x row) string { return text(x.P99) }},
		{"5 ×: goodput", five, goodput},
		{"p50", five, func(x row) string { return text(x.P50) }},
		{"p99", five, func(x row) string { return text(x.P99) }},
	})
}

func (s *Suite) writeBreakers(b *strings.Builder) {
	if len(s.breakers) == 0 {
		return
	}
	b.WriteString("\n### Breakers\n\nA dependency fails for 7 s, and one call in 20 never reports its result. All breakers open for 1 s and close after three successes.\n\n")
	b.WriteString("|  | calls that failed | recovered after | wedged |\n|---|--:|--:|--:|\n")
	for _, x := range s.breakers {
		name := x.name
		if x.ours {
			name = "`" + name + "`"
		}
		fmt.Fprintf(b, "| %s | %d | %s | %d of %d |\n", name, x.failed, text(x.recovered), x.wedged, x.runs)
	}
}
