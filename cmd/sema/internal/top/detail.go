package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// detailHeader is the semaphore that is looked at, and how it is set.
func (m model) detailHeader() []string {
	s, _, ok := m.chosen()
	if !ok {
		return nil
	}
	how := fmt.Sprintf("  %s of %s in use", amount(s.inUse), amount(s.effective))
	if s.waiting > 0 {
		how += "  " + alarming.Render(amount(int64(s.waiting))+" waiting")
	}
	if state := s.state(); state != "" {
		how += "  " + state
	}
	const leastName, leastBar, mostBar = 16, 8, 40
	name := printable.Line(s.name)
	name = printable.Fit(name, max(leastName, m.width-ansi.StringWidth(how)-leastBar-2))
	bar := max(leastBar, min(mostBar, m.width-ansi.StringWidth(name+how)-2))
	first := strong.Render(name) + "  " + s.bar(bar) + how
	settings := []string{fmt.Sprintf("capacity %d", s.capacity)}
	if s.ramp > 0 {
		settings = append(settings, fmt.Sprintf("rises by %d a second", s.ramp))
	}
	if s.window > 0 {
		settings = append(settings, "per "+flags.Span(s.window))
	}
	if s.ttl > 0 {
		settings = append(settings, "TTL "+flags.Span(s.ttl))
	}
	return []string{first, strings.Join(settings, "  ")}
}

// details are who holds and, in order, who waits.
func (m model) details() []string {
	s, _, ok := m.chosen()
	if !ok {
		return nil
	}
	who := 12
	for _, h := range s.holders {
		who = max(who, ansi.StringWidth(printable.Line(h.who)))
	}
	for _, w := range s.line {
		who = max(who, ansi.StringWidth(printable.Line(w.who)))
	}
	who = min(who, max(12, m.width/3))
	n := len(s.holders) + len(s.line)
	lines := []string{m.titled(fmt.Sprintf("  %-7s %6s  %6s  %s  %s", "PLACE", "WEIGHT", "FOR", fit("WHO", who), "WHERE"), n)}
	for i := m.top; i < min(n, m.top+m.rows()); i++ {
		lines = append(lines, m.detail(s, i, who))
	}
	switch {
	case s.failure != "":
		lines = append(lines, "", critical.Render("  not read: "+printable.Line(s.failure)))
	case n == 0 && s.inUse > 0 && s.window > 0:
		lines = append(lines, "", fmt.Sprintf("  %d were granted in the last %s, and come back by time alone", s.inUse, flags.Span(s.window)))
	case n == 0 && s.waiting == 0:
		lines = append(lines, "", "  nobody holds a permit, nobody waits")
	case s.waiting > len(s.line):
		lines = append(lines, fmt.Sprintf("  and %d wait, of whom nothing is known", s.waiting-len(s.line)))
	}
	return lines
}

// detail is one line: a holder, or one who waits.
func (m model) detail(s semaphore, i, width int) string {
	marker := "  "
	if i == m.line {
		marker = "▸ "
	}
	place, weight, held, who, where := "", int64(0), "", "", ""
	if i < len(s.holders) {
		h := s.holders[i]
		place, weight, held, who, where = "holds", h.weight, age(h.held), h.who, h.where
		switch {
		case h.revoked:
			place = "leaving"
		case h.pooled:
			place = "block"
		}
	} else {
		w := s.line[i-len(s.holders)]
		place, weight, who, where = fmt.Sprintf("#%d", i-len(s.holders)+1), w.weight, w.who, w.where
	}
	label := fit(printable.Line(who), width)
	if i == m.line {
		label = cursor.Render(label)
	}
	return fmt.Sprintf("%s%-7s %6s  %6s  %s  %s", marker, place, amount(weight), held, label, printable.Line(where))
}
