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

// A question asks for confirmation of an action. It contains the numbers.
type question struct {
	text string
	what string // describes the action, in its result
	do   func(ctx context.Context) error
}

// press handles a key.
func (m model) press(key tea.KeyPressMsg) (model, tea.Cmd) {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.helping:
		m.helping = false
		return m, nil
	case m.question != nil:
		return m.confirm(name)
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
		m.mode, m.top, m.result = listing, 0, ""
	case "enter", "right", "l":
		if _, _, ok := m.chosen(); ok && m.mode == listing {
			m.mode, m.cursor, m.lease, m.top, m.result = detailing, 0, 0, 0, ""
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
	case "?":
		m.helping = true
	case "s":
		m.order = m.nextOrder()
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
		m.cursor = max(0, min(m.cursor+by, len(s.Holders)+len(s.Waiters)-1))
		m.lease = s.leaseAt(m.cursor)
	default:
		m.selected = shown[max(0, min(at+by, len(shown)-1))].Name
	}
	return m
}

// jump moves the cursor from the holders to the waiters, and back.
func (m model) jump() model {
	s, _, ok := m.chosen()
	if !ok || m.mode != detailing {
		return m
	}
	if m.cursor < len(s.Holders) {
		return m.move(len(s.Holders) - m.cursor)
	}
	return m.move(-m.cursor)
}

// typing handles a key while text is typed: a filter, which applies as it is typed, or a capacity.
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

// act asks for confirmation of a key's action.
func (m model) act(key string) model {
	s, _, ok := m.chosen()
	if !ok {
		return m
	}
	m.result = ""
	switch key {
	case "d":
		m.question = &question{
			text: fmt.Sprintf("Drain %s? %d of %d permits stay in use; %s.", quoted(s.Name), s.InUse, s.Capacity, rejected(s.Waiting)),
			what: "drain " + s.Name, do: func(ctx context.Context) error { return m.from.drain(ctx, s.Name, true) },
		}
	case "r":
		m.question = &question{
			text: fmt.Sprintf("Resume %s? %d of %d permits are in use; the others are granted again.", quoted(s.Name), s.InUse, s.Capacity),
			what: "resume " + s.Name, do: func(ctx context.Context) error { return m.from.drain(ctx, s.Name, false) },
		}
	case "c":
		m.back, m.mode, m.typed = m.mode, sizing, ""
	case "x":
		m = m.askRevoke(s)
	}
	return m
}

func (m model) askRevoke(s semaphore) model {
	if m.mode != detailing || m.cursor >= len(s.Holders) {
		m.result, m.resultFailed = "choose a holder first: Enter shows a semaphore, ↑ and ↓ choose", true
		return m
	}
	h := s.Holders[m.cursor]
	m.question = &question{
		text: fmt.Sprintf("Revoke %s of %s, held by %s for %v? The holder is notified; the permits are free when it has confirmed, or has expired after %v.",
			figure.Count(h.Weight, "permit"), quoted(s.Name), printable.Fit(printable.Line(processOf(h)), 60), age(h.For(s.now)), time.Duration(s.TTL)),
		what: fmt.Sprintf("revoke %s of %s", figure.Count(h.Weight, "permit"), printable.Line(processOf(h))),
		do:   func(ctx context.Context) error { return m.from.revoke(ctx, s.Name, h.Lease) },
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
		m.result, m.resultFailed = "want a capacity of 0 or more; nothing was changed", true
		return m
	}
	consequence := fmt.Sprintf("%d in use, %d waiting.", s.InUse, s.Waiting)
	switch {
	case capacity == 0:
		consequence = fmt.Sprintf("%d stay in use, and none is granted.", s.InUse)
	case capacity <= s.InUse:
		consequence = fmt.Sprintf("%d are in use: none is granted until %d are released.", s.InUse, s.InUse-capacity+1)
	case capacity > s.Capacity && s.Ramp > 0:
		consequence += fmt.Sprintf(" It rises by %d per second.", s.Ramp)
	}
	m.question = &question{
		text: fmt.Sprintf("Set the capacity of %s from %d to %d? %s", quoted(s.Name), s.Capacity, capacity, consequence),
		what: fmt.Sprintf("set the capacity of %s from %d to %d", s.Name, s.Capacity, capacity),
		do:   func(ctx context.Context) error { return m.from.resize(ctx, s.Name, capacity) },
	}
	return m
}

// confirm handles the key after a question. Only y confirms.
func (m model) confirm(key string) (model, tea.Cmd) {
	q := m.question
	m.question = nil
	if key != "y" && key != "Y" {
		m.result, m.resultFailed = "nothing was done", false
		return m, nil
	}
	m.result, m.resultFailed = q.what+" …", false
	return m, func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
		defer cancel()
		return doneMsg{q.what, q.do(ctx)}
	}
}

func quoted(name string) string { return strconv.Quote(printable.Fit(printable.Line(name), 60)) }

// rejected describes what draining does to waiters.
func rejected(waiting int) string {
	if waiting == 0 {
		return "new acquires are rejected"
	}
	return figure.Count(int64(waiting), "waiter") + " and new acquires are rejected"
}

// age formats a duration in at most six characters.
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
