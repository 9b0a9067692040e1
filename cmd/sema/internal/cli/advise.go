package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

func (p *program) adviseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:               "advise NAME",
		ValidArgsFunction: p.names,
		Short:             "Report how many permits a semaphore needs, and what is wrong with it",
		Long: `Report how many permits a semaphore needs, from what a server has measured in the last 5
minutes and in the last day: the load by Little's law (arrivals times hold), the
capacity at which 80 % are in use, and the mean wait at other capacities. It also
names signs of a slow dependency, of a permit that is never released, and of a
capacity that is not used.

Only a server measures ('sema serve', --store sema://…). Of other stores, the present
state is known.`,
		Example: `  sema advise builds --store sema://localhost:7362
  sema advise builds -o json | jq .needed`,
	}
	output := outputFlag(c, table, jsonLines)
	c.Args = cobra.ExactArgs(1)
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.briefly(dial.Reading, func(ctx context.Context, s scope.Scope) error {
			a, err := s.Advise(ctx, args[0])
			if err != nil {
				return err
			}
			if *output == jsonLines {
				return writeJSON(p.out, a)
			}
			_, err = fmt.Fprint(p.out, adviceText(a))
			return err
		})
	}
	return c
}

// adviceText formats an advice.
func adviceText(a scope.Advice) string {
	var b strings.Builder
	seconds := func(v float64) string { return figure.Short(time.Duration(v * float64(time.Second))).String() }
	for _, f := range a.Findings {
		fmt.Fprintf(&b, "%-16s %s\n", f.Kind, f.Text)
	}
	switch {
	case len(a.Findings) > 0:
	case a.Unknown != "":
		fmt.Fprintf(&b, "nothing found in what is known\n")
	default:
		fmt.Fprintf(&b, "nothing found\n")
	}
	if a.Load != nil {
		fmt.Fprintf(&b, "\nacquires: %.4g a second", a.Arrivals)
		if a.MeanHold != nil {
			fmt.Fprintf(&b, ", held for %s on average", seconds(*a.MeanHold))
		}
		fmt.Fprintf(&b, ": %.3g of %s in use on average (last %s)\n", *a.Load, figure.Count(a.Capacity, "permit"), seconds(a.Window))
		fmt.Fprintf(&b, "needed for 80 %% utilisation: %d\n", a.Needed)
		if a.Note != "" {
			fmt.Fprintf(&b, "%s\n", a.Note)
		}
		fmt.Fprintf(&b, "\nCAPACITY  MEAN WAIT (expected)\n")
		for _, e := range a.Expected {
			wait := "the queue grows"
			if e.Wait != nil {
				wait = seconds(*e.Wait)
			}
			fmt.Fprintf(&b, "%8d  %s\n", e.Capacity, wait)
		}
	}
	if a.Unknown != "" {
		fmt.Fprintf(&b, "\nunknown: %s\n", a.Unknown)
	}
	return b.String()
}

// timesText describes the times of a semaphore in one line; "": nothing is known.
func timesText(s scope.State) string {
	t := s.Times
	if t == nil {
		return ""
	}
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if t.HeadAge != nil {
		add("the first has waited %v and needs %d, %d free", shortOf(t.HeadAge), t.FirstNeeds, s.Free)
	}
	if t.OldestHold != nil {
		add("oldest hold %v", shortOf(t.OldestHold))
	}
	if t.Window != 0 {
		add("last %v: %.3g grants/s, wait p50 %s p99 %s, hold p50 %s p99 %s", figure.Short(time.Duration(t.Window)), *t.Grants,
			shortOf(t.WaitP50), shortOf(t.WaitP99), shortOf(t.HoldP50), shortOf(t.HoldP99))
	}
	return strings.Join(parts, "; ")
}

// timesRow returns the cells of a semaphore for measured times.
func timesRow(t *scope.Times) []string {
	if t == nil {
		return []string{"-", "-", "-", "-"}
	}
	grants := "-"
	if t.Grants != nil {
		grants = fmt.Sprintf("%.3g", *t.Grants)
	}
	return []string{grants, shortOf(t.WaitP99), shortOf(t.HoldP99), shortOf(t.HeadAge)}
}

func shortOf(d *scope.Duration) string {
	if d == nil {
		return "-"
	}
	return figure.Short(time.Duration(*d)).String()
}
