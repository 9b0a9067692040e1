package tuning

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/tune"
)

// A report is what the command prints.
type report struct {
	tune.Result
	interrupted bool
}

// summary returns a line about a number that was measured.
func summary(s tune.Step) string {
	text := fmt.Sprintf("%d at a time: %s a second, p99 %v", s.Capacity, perSecond(s.Throughput), figure.Short(s.P99))
	if s.Excluded != "" {
		text += "; excluded: " + printable.Line(s.Excluded)
	}
	return text
}

// perSecond formats a throughput with three digits.
func perSecond(v float64) string {
	if v >= 99.95 {
		return figure.Grouped(int64(v + 0.5))
	}
	return fmt.Sprintf("%.3g", v)
}

func (r report) print(w io.Writer, as string) error {
	if as == "json" {
		return printable.WriteJSON(w, r.document(), "  ")
	}
	_, err := io.WriteString(w, r.text())
	return err
}

// text formats the result in 80 columns: a row for each number, with bars for throughput and p99.
func (r report) text() string {
	var b strings.Builder
	if r.interrupted {
		fmt.Fprintf(&b, "interrupted: these are the results until then\n")
	}
	if len(r.Steps) > 0 {
		r.rows(&b)
	}
	if r.Proposed > 0 {
		fmt.Fprintf(&b, "\nproposed: %d\n%s\n", r.Proposed, printable.Line(r.Why))
	} else {
		fmt.Fprintf(&b, "\nno number can be proposed: %s\n", printable.Line(r.Why))
	}
	return b.String()
}

func (r report) rows(b *strings.Builder) {
	const width = 20
	var most float64
	var longest time.Duration
	for _, s := range r.Steps {
		most, longest = max(most, s.Throughput), max(longest, s.P99)
	}
	fmt.Fprintf(b, "\nat a time  %-*s  %-*s\n", width+10, "runs a second", width+10, "p99")
	for _, s := range r.Steps {
		mark := ""
		switch {
		case s.Excluded != "":
			mark = "✗"
		case s.Capacity == r.Needed:
			mark = "◀"
		}
		fmt.Fprintf(b, "%9d  %s %9s  %s %9v %s\n", s.Capacity, bar(s.Throughput/max(most, 1e-9), width), perSecond(s.Throughput),
			bar(float64(s.P99)/max(float64(longest), 1), width), figure.Short(s.P99), mark)
	}
}

func bar(part float64, width int) string {
	filled, rest := figure.Bar(part, width)
	return filled + strings.Repeat(" ", rest)
}

// A document is the result as JSON. Durations are in seconds.
type document struct {
	Proposed    int64  `json:"proposed"` // 0: none
	Needed      int64  `json:"needed"`
	Why         string `json:"why"`
	Steps       []row  `json:"steps"`
	Interrupted bool   `json:"interrupted"`
}

type row struct {
	Capacity   int64   `json:"capacity"`
	Throughput float64 `json:"per_second"`
	P50        float64 `json:"p50_seconds"`
	P99        float64 `json:"p99_seconds"`
	Calls      int64   `json:"runs"`
	Failed     int64   `json:"failed"`
	Error      string  `json:"error,omitempty"`
	Excluded   string  `json:"excluded,omitempty"`
}

func (r report) document() document {
	d := document{Proposed: r.Proposed, Needed: r.Needed, Why: r.Why, Steps: []row{}, Interrupted: r.interrupted}
	for _, s := range r.Steps {
		step := row{Capacity: s.Capacity, Throughput: s.Throughput, P50: s.P50.Seconds(), P99: s.P99.Seconds(), Calls: s.Calls, Failed: s.Failed, Excluded: s.Excluded}
		if s.Err != nil {
			step.Error = s.Err.Error()
		}
		d.Steps = append(d.Steps, step)
	}
	return d
}
