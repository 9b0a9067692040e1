package doctor

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/fleet"
)

// A report contains the findings.
type report struct {
	Store    string          `json:"store"`
	Reached  bool            `json:"reached"`
	Problems int             `json:"problems"`
	Warnings int             `json:"warnings"`
	Findings []fleet.Finding `json:"findings"`
	misused  bool            // the URL is invalid
}

func (r *report) add(findings ...fleet.Finding) {
	for _, f := range findings {
		switch f.Level {
		case fleet.LevelProblem:
			r.Problems++
		case fleet.LevelWarning:
			r.Warnings++
		}
		r.Findings = append(r.Findings, f)
	}
}

// status returns the error with which the command ends, nil if there is no problem.
func (r *report) status() error {
	switch {
	case r.misused:
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s is invalid", r.Store), Printed: true}
	case !r.Reached:
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("%s was not reached", r.Store), Printed: true}
	case r.Problems > 0:
		return &exit.Error{Code: exit.Failed, Err: errors.New(r.summary()), Printed: true}
	}
	return nil
}

func (r *report) summary() string {
	if r.Problems+r.Warnings == 0 {
		return "no problems"
	}
	return figure.Count(int64(r.Problems), "problem") + ", " + figure.Count(int64(r.Warnings), "warning")
}

// styles maps levels to colours. The level is also written as text.
var styles = map[fleet.Level]lipgloss.Style{
	fleet.LevelOK:      lipgloss.NewStyle().Foreground(lipgloss.Green),
	fleet.LevelWarning: lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	fleet.LevelProblem: lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
}

func (r *report) print(w io.Writer, as string) error {
	if as == "json" {
		return printable.WriteJSON(w, r, "  ")
	}
	var b strings.Builder
	fmt.Fprintln(&b, printable.Line(r.Store))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %-14s %s\n", styles[f.Level].Render(fmt.Sprintf("%-8s", f.Level)), printable.Line(f.Check), printable.Line(f.Seen))
		if f.Advice != "" {
			fmt.Fprintf(&b, "%-23s → %s\n", "", printable.Line(f.Advice))
		}
	}
	fmt.Fprintln(&b, r.summary())
	_, err := lipgloss.Fprint(w, b.String()) // omits colours if they are not wanted
	return err
}
