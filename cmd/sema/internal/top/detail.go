package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// detailHeader renders the chosen semaphore and its settings.
func (m model) detailHeader() []string {
	s, _, ok := m.chosen()
	if !ok {
		return nil
	}
	how := fmt.Sprintf("  %s of %s in use", amount(s.InUse), amount(s.Effective))
	if s.Waiting > 0 {
		how += "  " + alarming.Render(amount(int64(s.Waiting))+" waiting")
	}
	if state := s.state(); state != "" {
		how += "  " + state
	}
	const leastName, leastBar, mostBar = 16, 8, 40
	name := printable.Line(s.Name)
	name = printable.Fit(name, max(leastName, m.width-ansi.StringWidth(how)-leastBar-2))
	bar := max(leastBar, min(mostBar, m.width-ansi.StringWidth(name+how)-2))
	first := strong.Render(name) + "  " + s.bar(bar) + how
	settings := []string{fmt.Sprintf("capacity %d", s.Capacity)}
	if s.Ramp > 0 {
		settings = append(settings, fmt.Sprintf("rises by %d per second", s.Ramp))
	}
	if s.Window > 0 {
		settings = append(settings, "per "+flags.Span(time.Duration(s.Window)))
	}
	if s.TTL > 0 {
		settings = append(settings, "TTL "+flags.Span(time.Duration(s.TTL)))
	}
	lines := []string{first, strings.Join(settings, "  ")}
	if text := timesOf(s.State); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// details renders a row for each holder and then, in order, for each waiter.
func (m model) details() []string {
	s, _, ok := m.chosen()
	if !ok {
		return nil
	}
	all := slices.Concat(s.Holders, s.Waiters)
	width := 12
	for _, p := range all {
		width = max(width, ansi.StringWidth(printable.Line(processOf(p))))
	}
	width = min(width, max(12, m.width/3))
	n := len(all)
	lines := []string{m.titled(fmt.Sprintf("  %-7s %6s  %6s  %s  %s", "STATE", "WEIGHT", "FOR", fit("PROCESS", width), "ABOUT"), n)}
	for i := m.top; i < min(n, m.top+m.rows()); i++ {
		lines = append(lines, m.detail(s, all[i], i, width))
	}
	switch {
	case s.failure != "":
		lines = append(lines, "", critical.Render("  not read: "+printable.Line(s.failure)))
	case n == 0 && s.InUse > 0 && s.Window > 0:
		lines = append(lines, "", fmt.Sprintf("  %d were granted in the last %s; each becomes free after that time", s.InUse, flags.Span(time.Duration(s.Window))))
	case n == 0 && s.Waiting == 0:
		lines = append(lines, "", "  no holders and no waiters")
	case s.Waiting > len(s.Waiters):
		lines = append(lines, fmt.Sprintf("  and %s that this store does not list", figure.Count(int64(s.Waiting-len(s.Waiters)), "waiter")))
	}
	return lines
}

// detail renders the row of a holder or a waiter.
func (m model) detail(s semaphore, p scope.Participant, row, width int) string {
	marker, label := "  ", fit(printable.Line(processOf(p)), width)
	if row == m.cursor {
		marker, label = "▸ ", cursor.Render(label)
	}
	state, since := "holds", ""
	switch {
	case row >= len(s.Holders):
		state = fmt.Sprintf("#%d", row-len(s.Holders)+1)
	case p.Revoked:
		state = "revoked"
	case p.Pooled:
		state = "pool"
	}
	if !p.Since.IsZero() {
		since = age(p.For(s.now))
	}
	return fmt.Sprintf("%s%-7s %6s  %6s  %s  %s", marker, state, amount(p.Weight), since, label, printable.Line(p.About))
}

// timesOf renders what is known of waits and holds; "": nothing.
func timesOf(s scope.State) string {
	t := s.Times
	if t == nil {
		return ""
	}
	var parts []string
	if t.HeadAge != nil {
		parts = append(parts, fmt.Sprintf("first waits %s, needs %d, %d free", age(time.Duration(*t.HeadAge)), t.FirstNeeds, s.Free))
	}
	if t.OldestHold != nil {
		parts = append(parts, "oldest hold "+age(time.Duration(*t.OldestHold)))
	}
	if t.Grants != nil {
		parts = append(parts, fmt.Sprintf("%.3g grants/s", *t.Grants))
	}
	for _, one := range []struct {
		name     string
		p50, p99 *scope.Duration
	}{{"wait", t.WaitP50, t.WaitP99}, {"hold", t.HoldP50, t.HoldP99}} {
		text := one.name
		if one.p50 != nil {
			text += " p50 " + figure.Short(time.Duration(*one.p50)).String()
		}
		if one.p99 != nil {
			text += " p99 " + figure.Short(time.Duration(*one.p99)).String()
		}
		if text != one.name {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "  ")
}
