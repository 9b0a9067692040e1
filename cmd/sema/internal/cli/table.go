package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

const (
	columnGap = 2
	// leastColumn is the width below which no column is cut.
	leastColumn = 12
)

// writeTable writes rows of cells as aligned columns. The first row contains the titles.
// Cells are made printable. The widest columns are cut in the middle until a row fits into
// width; 0: no limit. paint colours the last cell of a row.
func writeTable(w io.Writer, rows [][]string, width int, paint func(string) string) error {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i] = printable.Line(row[i])
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
	}
	if width > 0 {
		narrow(widths, width)
	}
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			cell = printable.Fit(cell, widths[i])
			if i < len(row)-1 {
				text.WriteString(cell + strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+columnGap))
			} else {
				text.WriteString(paint(cell))
			}
		}
		text.WriteString("\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// narrow shrinks the widest column until all fit.
func narrow(widths []int, width int) {
	for {
		total, widest := columnGap*(len(widths)-1), 0
		for i, w := range widths {
			total += w
			if w > widths[widest] {
				widest = i
			}
		}
		if total <= width || widths[widest] <= leastColumn {
			return
		}
		widths[widest]--
	}
}

func unpainted(text string) string { return text }

// tableWidth returns the width of the terminal, or 0 if the output is not a terminal or must
// not be cut.
func (p *program) tableWidth(f format) int {
	if f == wide || !term.IsTerminal(p.out.Fd()) {
		return 0
	}
	width, _, err := term.GetSize(p.out.Fd())
	if err != nil {
		return 0
	}
	return width
}

// writeStates writes semaphores as a table, with further columns if more is true.
func (p *program) writeStates(states []scope.State, more bool, f format) error {
	head := []string{"NAME", "IN USE", "CAPACITY", "WAITING"}
	if more {
		head = append(head, "KIND", "TTL", "RAMP", "MAX WAITERS")
	}
	timed := f == wide && slices.ContainsFunc(states, func(s scope.State) bool { return s.Times != nil && s.Times.Window != 0 })
	if timed {
		head = append(head, "GRANTS/S", "WAIT P99", "HOLD P99", "HEAD AGE")
	}
	rows := [][]string{append(head, "STATUS")}
	for _, s := range states {
		row := []string{s.Name, number(s.InUse), number(s.Capacity), strconv.Itoa(s.Waiting)}
		if more {
			row = append(row, kindOf(s), orDash(s.TTL != 0, time.Duration(s.TTL).String()), orDash(s.Ramp > 0, number(s.Ramp)+"/s"), boundOf(s.MaxWaiters))
		}
		if timed {
			row = append(row, timesRow(s.Times)...)
		}
		rows = append(rows, append(row, s.Status()))
	}
	return writeTable(p.out, rows, p.tableWidth(f), p.paintStatus)
}

func kindOf(s scope.State) string {
	switch {
	case s.Window != 0:
		return fmt.Sprintf("%s per %v", s.Kind, time.Duration(s.Window))
	case s.Numbered:
		return s.Kind + ", numbered"
	}
	return s.Kind
}

func boundOf(m *scope.MaxWaiters) string {
	if m == nil {
		return "-"
	}
	return number(int64(*m))
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func orDash(known bool, text string) string {
	if known {
		return text
	}
	return "-"
}

// writeParticipants writes holders or waiters as a table, with a column for slots if any has
// slots. now is on the clock of their times.
func (p *program) writeParticipants(all []scope.Participant, now time.Time, f format) error {
	numbered := slices.ContainsFunc(all, func(h scope.Participant) bool { return h.Slots != "" })
	head := []string{"LEASE", "WEIGHT"}
	if numbered {
		head = append(head, "SLOTS")
	}
	head = append(head, "FOR", "SEEN", "HOST", "PROCESS")
	if f == wide {
		head = append(head, "SINCE", "NOTE")
	}
	rows := [][]string{append(head, "ABOUT")}
	for _, h := range all {
		row := []string{orDash(h.Lease != 0, strconv.FormatUint(h.Lease, 10)), number(h.Weight)}
		if numbered {
			row = append(row, orDash(h.Slots != "", string(h.Slots)))
		}
		row = append(row,
			orDash(!h.Since.IsZero(), h.For(now).Round(time.Second).String()), orDash(!h.Seen.IsZero(), max(0, now.Sub(h.Seen)).Round(time.Second).String()+" ago"),
			orDash(h.Host != "", h.Host), orDash(h.Process != 0, strconv.Itoa(h.Process)),
		)
		if f == wide {
			row = append(row, orDash(!h.Since.IsZero(), h.Since.Format(time.RFC3339)), noteOf(h))
		}
		rows = append(rows, append(row, orDash(h.About != "", h.About)))
	}
	return writeTable(p.out, rows, p.tableWidth(f), unpainted)
}

func noteOf(h scope.Participant) string {
	switch {
	case h.Revoked:
		return "revoked"
	case h.Pooled:
		return "pool"
	}
	return "-"
}

// paintStatus colours the status of a semaphore, unless colours are disabled.
func (p *program) paintStatus(text string) string {
	const red, yellow, plainly = "\x1b[31m", "\x1b[33m", "\x1b[0m"
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
