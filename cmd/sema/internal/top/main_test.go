package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

var update = flag.Bool("update", false, "write the golden screens anew")

func TestMain(m *testing.M) { commandtest.Main(m, Command, redistest.Shared.End) }

// A fake source notes what is done, and fails if told.
type fake struct {
	view view
	done []string
	err  error
}

func (f *fake) look(context.Context, string, string) (view, error) { return f.view, f.err }

func (f *fake) do(format string, args ...any) error {
	f.done = append(f.done, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) drain(_ context.Context, name string) error  { return f.do("drain %s", name) }
func (f *fake) resume(_ context.Context, name string) error { return f.do("resume %s", name) }
func (f *fake) resize(_ context.Context, name string, n int64) error {
	return f.do("resize %s %d", name, n)
}
func (f *fake) revoke(_ context.Context, name string, lease uint64) error {
	return f.do("revoke %s %d", name, lease)
}

// noon is when all tests take place.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// night is what somebody on call may see.
func night() view {
	return view{semaphores: []semaphore{
		{name: "api/search", capacity: 200, effective: 200, inUse: 61, ttl: 15 * time.Second, holders: make([]holder, 58)},
		{name: "db", capacity: 40, effective: 40, inUse: 40, waiting: 3, ttl: 15 * time.Second,
			holders: []holder{
				{lease: 101, weight: 30, held: 83 * time.Minute, who: "batch-7/4711", where: "report.go:88 team=finance"},
				{lease: 102, weight: 8, held: 61 * time.Second, who: "web-1/815", where: "pool.go:12", pooled: true},
				{lease: 103, weight: 2, held: 42 * time.Millisecond, who: "web-2/816", where: "\x1b[31mpool.go:12", revoked: true},
			},
			line: []waiter{{5, "web-3/99", "handler.go:140"}, {1, "web-4/100", "handler.go:140"}, {1, "web-4/100", "handler.go:151"}}},
		{name: "deploy", capacity: 1, effective: 1, inUse: 0, ttl: 30 * time.Second},
		{name: "emails", capacity: 600, effective: 600, inUse: 512, window: time.Minute, ttl: 15 * time.Second},
		{name: "gpu", capacity: 8, effective: 8, inUse: 8, ttl: 15 * time.Second, holders: make([]holder, 4)},
		{name: "legacy", capacity: 10, effective: 10, inUse: 4, draining: true, ttl: 15 * time.Second, holders: make([]holder, 4)},
		{name: "payments-reconciliation-eu-central-1", capacity: 12, effective: 12, inUse: 19, waiting: 1_204, ttl: 15 * time.Second, holders: make([]holder, 19), line: make([]waiter, 1_204)},
		{name: "thumbnails", capacity: 500, effective: 120, inUse: 117, ramp: 20, ttl: 15 * time.Second, holders: make([]holder, 117)},
		{name: "broken", failure: "semaphore \"broken\": redis has answered what this version does not understand"},
	}}
}

// A screen is a model that is driven by messages.
type screen struct {
	t *testing.T
	model
	from *fake
}

func newScreen(t *testing.T, width, height int) *screen {
	t.Helper()
	from := &fake{view: night()}
	s := &screen{t, newModel(t.Context(), from, "redis://10.0.0.3:6379", time.Second, ""), from}
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	s.looked(noon)
	return s
}

// send is one message. What it leads to is done at once, but for looks.
func (s *screen) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	next, cmd := s.Update(msg)
	s.model = next.(model)
	s.fits()
	return cmd
}

// looked has the model see what the source has.
func (s *screen) looked(at time.Time) {
	s.t.Helper()
	v, err := s.from.look(s.t.Context(), "", "")
	s.send(lookedMsg{v, err, at, 0})
}

// press presses keys, by name, and does what they lead to.
func (s *screen) press(keys ...string) {
	s.t.Helper()
	codes := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace,
		"pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "tab": tea.KeyTab, "home": tea.KeyHome, "end": tea.KeyEnd,
	}
	for _, key := range keys {
		msg := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		if code, special := codes[key]; special {
			msg = tea.KeyPressMsg{Code: code}
		}
		if rest, ok := strings.CutPrefix(key, "ctrl+"); ok {
			msg = tea.KeyPressMsg{Code: []rune(rest)[0], Mod: tea.ModCtrl}
		}
		if cmd := s.send(msg); cmd != nil {
			s.send(cmd())
		}
	}
}

// choose goes down the list to a semaphore.
func (s *screen) choose(name string) {
	s.t.Helper()
	s.press("home")
	for range s.all {
		if s.selected == name {
			return
		}
		s.press("down")
	}
	s.t.Fatalf("%q is not in the list:\n%s", name, s.text())
}

func (s *screen) text() string { return ansi.Strip(s.draw()) }

// fits fails unless the screen is no larger than the terminal.
func (s *screen) fits() {
	s.t.Helper()
	lines := strings.Split(s.draw(), "\n")
	if len(lines) > s.height {
		s.t.Errorf("%d lines in a window of %d×%d", len(lines), s.width, s.height)
	}
	for _, line := range lines {
		if ansi.StringWidth(line) > s.width {
			s.t.Errorf("a line of %d in a window of %d×%d: %s", ansi.StringWidth(line), s.width, s.height, line)
		}
	}
}

// want fails unless the screen has some texts on it.
func (s *screen) want(texts ...string) {
	s.t.Helper()
	all := strings.Join(strings.Fields(s.text()), " ") // wherever lines are broken
	for _, text := range texts {
		if !strings.Contains(all, text) {
			s.t.Errorf("there is no %q in\n%s", text, s.text())
		}
	}
}

// wantDone fails unless exactly that was done.
func (s *screen) wantDone(want ...string) {
	s.t.Helper()
	if got := fmt.Sprint(s.from.done); got != fmt.Sprint(want) {
		s.t.Errorf("%s was done, want %v", got, want)
	}
	s.from.done = nil
}

// golden compares the screen with a file.
func (s *screen) golden(name string) {
	s.t.Helper()
	file := filepath.Join("testdata", name+".txt")
	got := s.text() + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		s.t.Errorf("%s: %v (go test -update writes it anew)\n%s\nwant\n%s", file, err, got, want)
	}
}

var errRefused = errors.New("connection refused")
