package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/internal/filter"
)

// Styles. Colour alone conveys nothing; bold marks what matters most.
var (
	strong   = lipgloss.NewStyle().Bold(true)
	faint    = lipgloss.NewStyle().Faint(true)
	cursor   = lipgloss.NewStyle().Reverse(true)
	calm     = lipgloss.NewStyle().Foreground(lipgloss.Green)
	tense    = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	critical = lipgloss.NewStyle().Foreground(lipgloss.Red)
	alarming = critical.Bold(true)
	asking   = tense.Bold(true)
)

// View implements [tea.Model].
func (m model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "sema top " + printable.Line(m.where)
	return v
}

// draw renders the whole screen. No line is wider than the screen.
func (m model) draw() string {
	lines := m.header()
	body := m.list()
	if m.mode == detailing || m.mode == sizing && m.back == detailing {
		body = m.details()
	}
	if m.helping {
		body = m.help()
	}
	lines = append(lines, body...)
	footer := m.footer()
	if pane := m.pane(); pane != nil && !m.helping {
		for len(lines) < m.height-len(footer)-m.paneHeight() {
			lines = append(lines, "")
		}
		lines = append(lines[:m.height-len(footer)-m.paneHeight()], pane...)
	}
	for len(lines) < m.height-len(footer) {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, m.height-len(footer))], footer...)
	for i := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(lines[i], m.width, "…"), " ")
	}
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

// rows returns the number of rows that a list has space for.
func (m model) rows() int { return max(1, m.height-len(m.header())-len(m.footer())-m.paneHeight()-1) }

// header renders the store and the totals.
func (m model) header() []string {
	left := strong.Render("sema top") + "  " + printable.Line(m.where)
	if m.prefix != "" {
		left += "  " + printable.Line(m.prefix) + "*"
	}
	if m.filter != "" && m.mode != filtering { // otherwise the last line has it
		left += "  " + asking.Render("/"+printable.Line(m.filter))
	}
	var right string
	switch {
	case m.stale() && !m.seen.IsZero():
		right = alarming.Render(fmt.Sprintf("NO REPLY, as of %s ago", age(m.now.Sub(m.seen))))
	case m.failure != "":
		right = alarming.Render("NO REPLY")
	case m.seen.IsZero():
		right = "reading …"
	default:
		right = m.summary()
	}
	lines := []string{apart(left, right, m.width)}
	if m.mode == detailing || m.mode == sizing && m.back == detailing {
		lines = append(lines, m.detailHeader()...)
	}
	return lines
}

func (m model) summary() string {
	waiting, full := 0, 0
	for _, s := range m.all {
		waiting += s.Waiting
		if s.utilisation() >= 1 {
			full++
		}
	}
	text := fmt.Sprintf("%d waiting  %d of %d full  ", waiting, full, len(m.all))
	if m.more > 0 {
		text = fmt.Sprintf("%d waiting  %d of %d full, %d not read yet  ", waiting, full, len(m.all), m.more)
	}
	if waiting > 0 {
		text = strong.Render(text)
	}
	return text + m.now.Format(time.TimeOnly)
}

// footer renders the question or the last result, and the keys.
func (m model) footer() []string {
	var lines []string
	switch {
	case m.question != nil:
		lines = wrapped(asking, m.question.text, m.width)
	case m.failure != "":
		lines = wrapped(alarming, m.failure, m.width)
	case m.result != "" && m.resultFailed:
		lines = wrapped(alarming, m.result, m.width)
	case m.result != "":
		lines = wrapped(strong, m.result, m.width)
	default:
		lines = []string{""}
	}
	return append(lines, m.keys())
}

func (m model) keys() string {
	switch s, _, _ := m.chosen(); {
	case m.helping:
		return strong.Render("any key") + " back"
	case m.question != nil:
		return asking.Render("y") + " yes   " + strong.Render("any other key") + " no"
	case m.mode == filtering:
		return strong.Render("/"+m.typed) + "▏  " + faint.Render("Enter keep  Esc clear")
	case m.mode == sizing:
		return strong.Render(fmt.Sprintf("capacity of %s (now %d): %s", quoted(s.Name), s.Capacity, m.typed)) + "▏  " + faint.Render("Enter  Esc")
	case m.mode == detailing:
		return hints("↑↓", "choose", "⇥", "waiters", "Esc", "back", "x", "revoke", "d", "drain", "r", "resume", "c", "capacity", "q", "quit")
	}
	return hints("↑↓", "move", "⏎", "show", "/", "filter", "s", "sort", "d", "drain", "r", "resume", "c", "capacity", "?", "help", "q", "quit")
}

// hints renders keys with their actions.
func hints(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, strong.Render(pairs[i])+" "+pairs[i+1])
	}
	return strings.Join(all, "  ")
}

// widths returns the widths of the variable columns.
func (m model) widths(shown []semaphore) (name, bar int) {
	const fixed, leastName, leastBar, mostBar = 48, 12, 8, 60
	room := max(leastName+leastBar, m.width-fixed-m.wideColumns()-m.wordsWidth())
	name = leastName
	for _, s := range shown {
		name = max(name, ansi.StringWidth(printable.Line(s.Name)))
	}
	share := room * 3 / 5
	if m.wide() {
		share = room * 4 / 5
	}
	name = min(name, max(leastName, share))
	return name, max(leastBar, min(mostBar, room-name))
}

// list renders a row for each semaphore.
func (m model) list() []string {
	shown := m.shown()
	name, bar := m.widths(shown)
	head := fmt.Sprintf("  %s  %s  %s %s  %7s  %s", fit(m.titleOf("NAME", byName), name), fit(m.titleOf("USE", byUse), bar), right("IN USE/CAP", 11), right(m.titleOf("WAIT", byWaiters), 6), "HOLDERS", "STATE")
	if m.wide() {
		head = strings.TrimSuffix(head, "STATE") + m.wideTitles() + "STATE"
	}
	lines := []string{m.titled(head, len(shown))}
	_, at, _ := m.chosen()
	for i := m.top; i < min(len(shown), m.top+m.rows()); i++ {
		lines = append(lines, m.row(shown[i], i == at, name, bar))
	}
	switch {
	case len(shown) > 0:
	case m.seen.IsZero():
	case m.filter != "":
		lines = append(lines, "")
		lines = append(lines, wrapped(lipgloss.NewStyle().PaddingLeft(2), m.nothing(), m.width-2)...)
	default:
		lines = append(lines, "", "  no semaphores; the first acquire creates one")
	}
	return lines
}

// nothing describes why the filter matches no semaphore.
func (m model) nothing() string {
	if _, err := filter.Parse(m.filter); err != nil {
		return err.Error()
	}
	if filter.Plain(m.filter) {
		return fmt.Sprintf("none of %d semaphore names contains %q", len(m.all), m.filter)
	}
	return fmt.Sprintf("none of %d semaphores matches %q", len(m.all), m.filter)
}

// titleOf marks the title of the column by which the list is sorted.
func (m model) titleOf(text string, by order) string {
	if m.order == by {
		return text + "▾"
	}
	return text
}

// titled renders the titles of columns, and which of n rows are on the screen if not all fit.
func (m model) titled(columns string, n int) string {
	if n <= m.rows() {
		return strong.Render(ansi.Truncate(columns, m.width, ""))
	}
	return strong.Render(apart(columns, fmt.Sprintf("%d–%d of %d", m.top+1, min(n, m.top+m.rows()), n), m.width))
}

func (m model) row(s semaphore, chosen bool, name, bar int) string {
	marker, label := "  ", fit(printable.Fit(printable.Line(s.Name), name), name)
	if chosen {
		marker, label = "▸ ", cursor.Render(label)
	} else if s.Waiting > 0 {
		label = strong.Render(label)
	}
	if s.failure != "" {
		return fmt.Sprintf("%s%s  %s", marker, label, critical.Render("not read: "+printable.Line(s.failure)))
	}
	waiting := faint.Render(right("0", 6))
	if s.Waiting > 0 {
		waiting = alarming.Render(right(amount(int64(s.Waiting)), 6))
	}
	more := ""
	if m.wide() {
		more = m.wideCells(s)
	}
	return fmt.Sprintf("%s%s  %s  %s %s  %7s  %s%s", marker, label, s.bar(bar), right(amount(s.InUse)+"/"+amount(s.Effective), 11), waiting, amount(int64(len(s.Holders))), more, m.stateOf(s))
}

// bar renders the use, in eighths of a column.
func (s semaphore) bar(width int) string {
	part := s.utilisation()
	if s.InUse > 0 {
		part = max(part, 1/float64(8*width)) // never empty
	}
	filled, rest := figure.Bar(part, width)
	style := calm
	switch {
	case s.Waiting > 0 || s.utilisation() > 1:
		style = critical
	case s.utilisation() >= 0.8:
		style = tense
	}
	return style.Render(filled) + faint.Render(strings.Repeat("·", rest))
}

// state renders the status in a few words.
func (s semaphore) state() string {
	switch {
	case s.Draining && s.InUse == 0:
		return tense.Render("drained")
	case s.Draining:
		return tense.Render("draining")
	case s.Capacity == 0:
		return tense.Render("paused")
	case s.InUse > s.Effective:
		return critical.Render("over by " + amount(s.InUse-s.Effective))
	case s.Effective < s.Capacity:
		return tense.Render("rising to " + amount(s.Capacity))
	case s.InUse == s.Effective:
		style, text := tense, "full"
		if s.Waiting > 0 {
			style = alarming
		}
		if s.Window > 0 {
			text = "spent"
		}
		return style.Render(text)
	case s.Declared:
		return faint.Render("declared")
	case s.Window > 0:
		return "per " + flags.Span(time.Duration(s.Window))
	}
	return ""
}

// amount formats a number in at most six characters.
func amount(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fG", float64(n)/1e9)
}

// fit pads or cuts text to exactly width columns.
func fit(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}

// apart aligns one text at the left and one at the right. It cuts the left one if necessary.
func apart(left, end string, width int) string {
	room := max(0, width-ansi.StringWidth(end)-2)
	left = ansi.Truncate(left, room, "…")
	return left + strings.Repeat(" ", max(0, width-ansi.StringWidth(left)-ansi.StringWidth(end))) + end
}

// wrapped wraps text to at most three lines.
func wrapped(style lipgloss.Style, text string, width int) []string {
	lines := strings.Split(ansi.Wrap(text, max(1, width), ""), "\n")
	lines = lines[:min(len(lines), 3)]
	for i := range lines {
		lines[i] = style.Render(lines[i])
	}
	return lines
}
