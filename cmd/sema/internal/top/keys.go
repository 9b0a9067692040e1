package top

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A question is asked before something is done. It names the numbers.
type question struct {
	text string
	what string // for when it is done
	do   func(ctx context.Context) error
}

// press is one key.
func (m model) press(key tea.KeyPressMsg) (model, tea.Cmd) {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.question != nil:
		return m.answer(name)
	case m.mode == filtering || m.mode == sizing:
		return m.typing(key)
	}
	switch name {
	case "q":
		return m, tea.Quit
	case "esc", "left", "h", "backspace":
		if m.mode == listing && name == "esc" {
			m.filter = ""
		}
		m.mode, m.top, m.said = listing, 0, ""
	case "enter", "right", "l":
		if _, _, ok := m.chosen(); ok && m.mode == listing {
			m.mode, m.line, m.lease, m.top, m.said = detailing, 0, 0, 0, ""
		}
	case "up", "k":
		m = m.move(-1)
	case "down", "j":
		m = m.move(1)
	case "pgup", "ctrl+b":
		m = m.move(-m.rows())
	case "pgdown", "ctrl+f", "space":
		m = m.move(m.rows())
	case "home", "g":
		m = m.move(-1 << 30)
	case "end", "G":
		m = m.move(1 << 30)
	case "tab":
		m = m.jump()
	case "s":
		m.order = (m.order + 1) % orders
	case "/":
		m.back, m.mode, m.typed = listing, filtering, m.filter
	default:
		return m.act(name), nil
	}
	return m, nil
}

// move moves the cursor.
func (m model) move(by int) model {
	shown := m.shown()
	s, at, ok := m.chosen()
	switch {
	case !ok:
	case m.mode == detailing:
		m.line = max(0, min(m.line+by, len(s.holders)+len(s.line)-1))
		m.lease = s.leaseAt(m.line)
	default:
		m.selected = shown[max(0, min(at+by, len(shown)-1))].name
	}
	return m
}

// jump goes from the holders to the line, and back.
func (m model) jump() model {
	s, _, ok := m.chosen()
	if !ok || m.mode != detailing {
		return m
	}
	if m.line < len(s.holders) {
		return m.move(len(s.holders) - m.line)
	}
	return m.move(-m.line)
}

// typing is a key of text: of the filter, which is used as it is typed, or of a
// capacity.
func (m model) typing(key tea.KeyPressMsg) (model, tea.Cmd) {
	switch key.String() {
	case "esc":
		if m.mode == filtering {
			m.filter = ""
		}
		m.mode, m.typed = m.back, ""
		return m, nil
	case "enter":
		if m.mode == sizing {
			return m.askResize(), nil
		}
		m.mode, m.typed = m.back, ""
		return m, nil
	case "backspace":
		_, last := utf8.DecodeLastRuneInString(m.typed)
		m.typed = m.typed[:len(m.typed)-last]
	case "ctrl+u":
		m.typed = ""
	default:
		m.typed += printable.Line(key.Text)
	}
	if m.mode == filtering {
		m.filter = m.typed
	}
	return m, nil
}

// act asks about what a key wants to have done.
func (m model) act(key string) model {
	s, _, ok := m.chosen()
	if !ok {
		return m
	}
	m.said = ""
	switch key {
	case "d":
		m.question = &question{
			text: fmt.Sprintf("Drain %s? %d of %d permits are in use and go on; %s.", quoted(s.name), s.inUse, s.capacity, refused(s.waiting)),
			what: "drain " + s.name, do: func(ctx context.Context) error { return m.from.drain(ctx, s.name) },
		}
	case "r":
		m.question = &question{
			text: fmt.Sprintf("Resume %s? %d of %d permits are in use; the rest is granted again.", quoted(s.name), s.inUse, s.capacity),
			what: "resume " + s.name, do: func(ctx context.Context) error { return m.from.resume(ctx, s.name) },
		}
	case "c":
		m.back, m.mode, m.typed = m.mode, sizing, ""
	case "x":
		m = m.askRevoke(s)
	}
	return m
}

func (m model) askRevoke(s semaphore) model {
	if m.mode != detailing || m.line >= len(s.holders) {
		m.said, m.saidBad = "choose a holder first: Enter looks at a semaphore, ↑ and ↓ choose", true
		return m
	}
	h := s.holders[m.line]
	m.question = &question{
		text: fmt.Sprintf("Take %s of %s away from %s, after %v? It is told; others are let in once it has let go, or is dead for %v.",
			figure.Count(h.weight, "permit"), quoted(s.name), printable.Fit(printable.Line(h.who), 60), age(h.held), s.ttl),
		what: fmt.Sprintf("take %s away from %s", figure.Count(h.weight, "permit"), printable.Line(h.who)),
		do:   func(ctx context.Context) error { return m.from.revoke(ctx, s.name, h.lease) },
	}
	return m
}

func (m model) askResize() model {
	s, _, ok := m.chosen()
	capacity, err := strconv.ParseInt(strings.TrimSpace(m.typed), 10, 64)
	m.mode, m.typed = m.back, ""
	switch {
	case !ok:
		return m
	case err != nil || capacity < 0:
		m.said, m.saidBad = "a capacity is a number of 0 or more; nothing was changed", true
		return m
	}
	consequence := fmt.Sprintf("%d in use, %d waiting.", s.inUse, s.waiting)
	switch {
	case capacity == 0:
		consequence = fmt.Sprintf("%d in use go on, and nobody is let in.", s.inUse)
	case capacity <= s.inUse:
		consequence = fmt.Sprintf("%d are in use: nobody is let in until %d are back.", s.inUse, s.inUse-capacity+1)
	case capacity > s.capacity && s.ramp > 0:
		consequence += fmt.Sprintf(" It rises by %d a second.", s.ramp)
	}
	m.question = &question{
		text: fmt.Sprintf("Set the capacity of %s from %d to %d? %s", quoted(s.name), s.capacity, capacity, consequence),
		what: fmt.Sprintf("set the capacity of %s from %d to %d", s.name, s.capacity, capacity),
		do:   func(ctx context.Context) error { return m.from.resize(ctx, s.name, capacity) },
	}
	return m
}

// answer is a key after a question. Only y does it.
func (m model) answer(key string) (model, tea.Cmd) {
	q := m.question
	m.question = nil
	if key != "y" && key != "Y" {
		m.said, m.saidBad = "nothing was done", false
		return m, nil
	}
	m.said, m.saidBad = q.what+" …", false
	return m, func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, lookTime)
		defer cancel()
		return doneMsg{q.what, q.do(ctx)}
	}
}

func quoted(name string) string { return strconv.Quote(printable.Fit(printable.Line(name), 60)) }

// refused is what becomes of those in line when nobody is let in any more.
func refused(waiting int) string {
	switch waiting {
	case 0:
		return "nobody waits, and all who come are refused"
	case 1:
		return "1 who waits is refused, and all who come"
	}
	return fmt.Sprintf("%d who wait are refused, and all who come", waiting)
}

// age is a duration in at most six letters.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
