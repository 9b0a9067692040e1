package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/internal/filter"
)

// Terminals of at least these sizes show more: a sparkline, the 99th percentile of waits and the
// grants a second of each semaphore, and below the list the holders and waiters of the chosen one.
const (
	wideWidth, splitHeight = 120, 34
	// sparkWidth is the number of polls that a sparkline shows, and narrowSpark that on terminals of
	// less than sparkRoom columns.
	sparkWidth, narrowSpark, sparkRoom = 20, 10, 150
	// mostWords is the space for problems in words, beside the state, if the terminal has it.
	mostWords = 24
)

// sparkColumns returns the width of sparklines.
func (m model) sparkColumns() int {
	if m.width < sparkRoom {
		return narrowSpark
	}
	return sparkWidth
}

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
func spark(trend []float64, width int) string {
	trend = trend[max(0, len(trend)-width):]
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(trend)))
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
func (m model) wideTitles() string {
	return fmt.Sprintf("%s %s %s  ", fit("RECENT USE", m.sparkColumns()), right(m.titleOf("WAIT P99", byWaitP99), 9), right(m.titleOf("GRANTS/S", byGrants), 9))
}

// wordsWidth returns the space of a wide list for problems in words, beside the state.
func (m model) wordsWidth() int {
	if !m.wide() {
		return 0
	}
	return max(0, min(mostWords, m.width-wideWidth+mostWords/4))
}

// stateOf renders the state, and on wide terminals what is wrong, in words.
func (m model) stateOf(s semaphore) string {
	words := s.problem()
	if !m.wide() || words == "" {
		return s.state()
	}
	if s.Waiting > 0 {
		words = alarming.Render(words)
	}
	return strings.TrimSpace(s.state() + " " + words)
}

// A hold is an outlier if it takes more than outlier times the 99th percentile, and longHold at least.
// A queue is a problem once its first acquire has waited for lasting. These are the bounds of the dashboard.
const (
	lasting  = 2 * time.Second
	outlier  = 5
	longHold = 30 * time.Second
)

// hasProblem reports whether acquires have waited for lasting, a hold is an outlier, or a semaphore is drained
// while permits are held. A queue of unknown age is a problem.
func (s semaphore) hasProblem() bool {
	ageKnown := s.Times != nil && s.Times.HeadAge != nil
	return s.problem() != "" || s.Waiting > 0 && !ageKnown || s.Draining && s.InUse > 0
}

// problem describes how long the first waiter has waited, and an outlier among the holds; "": neither.
func (s semaphore) problem() string {
	t := s.Times
	if t == nil {
		return ""
	}
	var parts []string
	if s.Waiting > 0 && t.HeadAge != nil && time.Duration(*t.HeadAge) >= lasting {
		parts = append(parts, "head "+age(time.Duration(*t.HeadAge)))
	}
	if t.OldestHold != nil && t.HoldP99 != nil {
		held, p99 := time.Duration(*t.OldestHold), time.Duration(*t.HoldP99)
		if p99 > 0 && held >= longHold && held > outlier*p99 {
			parts = append(parts, "held "+age(held)+", p99 "+figure.Short(p99).String())
		}
	}
	return strings.Join(parts, "; ")
}

// waitP99 and grants return what a service has measured; -1: it is not known.
func (s semaphore) waitP99() time.Duration {
	if s.Times == nil || s.Times.WaitP99 == nil {
		return -1
	}
	return time.Duration(*s.Times.WaitP99)
}

func (s semaphore) grants() float64 {
	if s.Times == nil || s.Times.Grants == nil {
		return -1
	}
	return *s.Times.Grants
}

func (m model) wideCells(s semaphore) string {
	wait, grants := "–", "–"
	if d := s.waitP99(); d > 0 { // 0: nothing has waited
		wait = figure.Short(d).String()
	}
	if n := s.grants(); n >= 0 {
		grants = fmt.Sprintf("%.3g", n)
	}
	return fmt.Sprintf("%s %s %s  ", calm.Render(spark(m.trends[s.Name], m.sparkColumns())), right(wait, 9), right(grants, 9))
}

// wideColumns returns the width of these columns.
func (m model) wideColumns() int {
	if !m.wide() {
		return 0
	}
	return ansi.StringWidth(m.wideTitles())
}

// help describes the keys and the columns.
func (m model) help() []string {
	lines := []string{"", strong.Render("  Keys")}
	for _, k := range [][2]string{
		{"↑ ↓  j k", "choose a semaphore, a holder or a waiter"}, {"Enter", "show the holders and waiters"}, {"Esc", "go back; in the list: remove the filter"},
		{"⇥", "jump between holders and waiters"}, {"/", "filter, as you type: words of names, is:full, wait>5s, held>10m"}, {"", "also is:" + strings.Join(slices.DeleteFunc(filter.Words(), func(word string) bool { return word == "full" }), ", ")}, {"s", "sort by waiters, use, name; wide: waits, grants"},
		{"d  r", "drain, resume"}, {"c", "set the capacity"}, {"x", "revoke the permit of the chosen holder"}, {"q", "quit"},
	} {
		lines = append(lines, fmt.Sprintf("  %s  %s", strong.Render(fit(k[0], 9)), k[1]))
	}
	return append(lines, "", "  d, r, c and x ask first. Semaphores with the most waiters come first.",
		fmt.Sprintf("  Terminals of %d columns show recent use, waits and grants a second;", wideWidth), fmt.Sprintf("  with %d lines, also the holders and waiters of the chosen semaphore.", splitHeight))
}
