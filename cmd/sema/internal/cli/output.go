package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A format is how results are written.
type format string

const (
	table     format = "table"
	wide      format = "wide"
	jsonLines format = "json"
)

// String, Set and Type are for flags.
func (f *format) String() string { return string(*f) }

// Type is what help calls it.
func (*format) Type() string { return "format" }

// Set takes what there is.
func (f *format) Set(text string) error {
	switch format(text) {
	case table, wide, jsonLines:
		*f = format(text)
		return nil
	}
	return fmt.Errorf("want json, table or wide")
}

// outputFlag adds -o.
func outputFlag(c *cobra.Command) *format {
	f := table
	c.Flags().VarP(&f, "output", "o", "json, table or wide")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "table", "wide"}, cobra.ShellCompDirectiveNoFileComp))
	return &f
}

// writeJSON writes a value as people can read it, too.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// writeTable aligns rows of cells. There is no row without a first one.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// listing is semaphores as a table. The status is last: its colour would count as
// width.
func (p *program) listing(states []scope.State, f format) [][]string {
	head := []string{"NAME", "IN USE", "CAPACITY", "WAITING"}
	if f == wide {
		head = append(head, "KIND", "TTL", "RAMP", "MAX WAITERS")
	}
	rows := [][]string{append(head, "STATUS")}
	for _, s := range states {
		row := []string{s.Name, number(s.InUse), number(s.Capacity), strconv.Itoa(s.Waiting)}
		if f == wide {
			row = append(row, kindOf(s), orDash(s.TTL != 0, time.Duration(s.TTL).String()), orDash(s.Ramp > 0, number(s.Ramp)+"/s"), orDash(s.MaxWaiters > 0, number(s.MaxWaiters)))
		}
		rows = append(rows, append(row, p.status(s)))
	}
	return rows
}

func kindOf(s scope.State) string {
	if s.Window != 0 {
		return fmt.Sprintf("%s per %v", s.Kind, time.Duration(s.Window))
	}
	return s.Kind
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func orDash(known bool, text string) string {
	if known {
		return text
	}
	return "-"
}

// participants are those who hold, or wait, as a table.
func participants(all []scope.Participant, f format) [][]string {
	head := []string{"LEASE", "WEIGHT", "FOR", "SEEN", "HOST", "PROCESS", "ABOUT"}
	if f == wide {
		head = append(head[:6:6], "SINCE", "NOTE", "ABOUT")
	}
	rows := [][]string{head}
	for _, h := range all {
		row := []string{
			orDash(h.Lease != 0, strconv.FormatUint(h.Lease, 10)), number(h.Weight), orDash(!h.Since.IsZero(), h.For().Round(time.Second).String()),
			orDash(!h.Seen.IsZero(), max(0, time.Since(h.Seen)).Round(time.Second).String()+" ago"),
			orDash(h.Host != "", h.Host), orDash(h.PID != 0, strconv.Itoa(h.PID)),
		}
		if f == wide {
			row = append(row, orDash(!h.Since.IsZero(), h.Since.Format(time.RFC3339)), noteOf(h))
		}
		rows = append(rows, append(row, orDash(h.About != "", h.About)))
	}
	return rows
}

func noteOf(h scope.Participant) string {
	switch {
	case h.Revoked:
		return "taken away"
	case h.Pooled:
		return "pool"
	}
	return "-"
}

// status is with a colour where that is wanted.
func (p *program) status(s scope.State) string {
	const red, yellow, plainly = "\x1b[31m", "\x1b[33m", "\x1b[0m"
	text := s.Status()
	if !p.colours() {
		return text
	}
	switch text {
	case "full":
		return red + text + plainly
	case "draining", "paused", "rising":
		return yellow + text + plainly
	}
	return text
}

// colours reports whether somebody looks who has not asked for none.
func (p *program) colours() bool {
	out, ok := p.out.(*os.File)
	return ok && isatty.IsTerminal(out.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// confirm asks the person at the terminal. Without one nobody is asked, and yes has
// to be said beforehand.
func (p *program) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !isatty.IsTerminal(p.in.Fd()) {
		return usage("%s Say --yes: there is no terminal to ask at", question)
	}
	fmt.Fprintf(p.err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(p.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return usage("nothing was changed")
}
