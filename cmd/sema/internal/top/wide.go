package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
)

// Terminals of at least these sizes show more: a sparkline, the 99th percentile of waits and the
// grants a second of each semaphore, and below the list the holders and waiters of the chosen one.
const (
	wideWidth, splitHeight = 140, 34
	// sparkWidth is the number of polls that a sparkline shows.
	sparkWidth = 20
)

func (m model) wide() bool { return m.width >= wideWidth }

// split reports whether the chosen semaphore is shown below the list.
func (m model) split() bool {
	return m.wide() && m.height >= splitHeight && m.mode != detailing && !(m.mode == sizing && m.back == detailing)
}

// paneHeight returns the number of lines below the list.
func (m model) paneHeight() int {
	if !m.split() {
		return 0
	}
	return m.height / 3
}

// pane renders the chosen semaphore below the list.
func (m model) pane() []string {
	height := m.paneHeight()
	if height == 0 {
		return nil
	}
	m.mode, m.cursor, m.top = detailing, -1, 0
	lines := append([]string{faint.Render(strings.Repeat("─", m.width))}, m.detailHeader()...)
	lines = append(lines, m.details()...)
	return lines[:min(len(lines), height)]
}

// trended returns the trends with the result of a poll added, and without what was deleted.
func (m model) trended() map[string][]float64 {
	trends := make(map[string][]float64, len(m.all))
	for _, s := range m.all {
		was := m.trends[s.Name]
		if len(was) >= sparkWidth {
			was = was[len(was)-sparkWidth+1:]
		}
		trends[s.Name] = append(was[:len(was):len(was)], s.utilisation())
	}
	return trends
}

// spark renders the use of the capacity at the last polls.
func spark(trend []float64) string {
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(0, sparkWidth-len(trend))))
	for _, use := range trend {
		level := int(min(1, use)*float64(len(levels)-1) + 0.5)
		if use > 0 {
			level = max(1, level) // never empty
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

// wideTitles and wideCells are the columns of a wide list.
func wideTitles() string {
	return fmt.Sprintf("%s %8s %8s  ", fit("RECENT USE", sparkWidth), "WAIT P99", "GRANTS/S")
}

func (m model) wideCells(s semaphore) string {
	wait, grants := "–", "–"
	if t := s.Times; t != nil {
		if t.WaitP99 != nil {
			wait = figure.Short(time.Duration(*t.WaitP99)).String()
		}
		if t.Grants != nil {
			grants = fmt.Sprintf("%.3g", *t.Grants)
		}
	}
	return fmt.Sprintf("%s %s %s  ", calm.Render(spark(m.trends[s.Name])), right(wait, 8), right(grants, 8))
}

// wideColumns returns the width of these columns.
func (m model) wideColumns() int {
	if !m.wide() {
		return 0
	}
	return ansi.StringWidth(wideTitles())
}

// help describes the keys and the columns.
func (m model) help() []string {
	lines := []string{"", strong.Render("  Keys")}
	for _, k := range [][2]string{
		{"↑ ↓  j k", "choose a semaphore, a holder or a waiter"}, {"Enter", "show the holders and waiters"}, {"Esc", "go back; in the list: remove the filter"},
		{"⇥", "jump between holders and waiters"}, {"/", "filter by name, as you type"}, {"s", "sort by waiters, use or name"},
		{"d  r", "drain, resume"}, {"c", "set the capacity"}, {"x", "revoke the permit of the chosen holder"}, {"q", "quit"},
	} {
		lines = append(lines, fmt.Sprintf("  %s  %s", strong.Render(fit(k[0], 9)), k[1]))
	}
	return append(lines, "", "  d, r, c and x ask first. Semaphores with the most waiters come first.",
		fmt.Sprintf("  Terminals of %d columns show recent use, waits and grants a second;", wideWidth), fmt.Sprintf("  with %d lines, also the holders and waiters of the chosen semaphore.", splitHeight))
}
