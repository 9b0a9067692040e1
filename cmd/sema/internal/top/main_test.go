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
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

var update = flag.Bool("update", false, "rewrite the golden screens")

func TestMain(m *testing.M) { commandtest.Main(m, Command, redistest.Shared.End) }

// A fake is a source that records actions, and fails with err.
type fake struct {
	page page
	done []string
	err  error
}

func (f *fake) poll(context.Context, string, string) (page, error) { return f.page, f.err }

func (f *fake) do(format string, args ...any) error {
	f.done = append(f.done, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) drain(_ context.Context, name string, draining bool) error {
	if !draining {
		return f.do("resume %s", name)
	}
	return f.do("drain %s", name)
}

func (f *fake) resize(_ context.Context, name string, n int64) error {
	return f.do("resize %s %d", name, n)
}

func (f *fake) revoke(_ context.Context, name string, lease uint64) error {
	return f.do("revoke %s %d", name, lease)
}

// noon is the time in all tests.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// incident returns a page with every kind of problem.
func incident() page {
	semaphores := []semaphore{
		{State: scope.State{Name: "api/search", Capacity: 200, Effective: 200, InUse: 61, Holders: make([]scope.Participant, 58)}},
		{State: scope.State{Name: "db", Capacity: 40, Effective: 40, InUse: 40, Waiting: 3,
			Holders: []scope.Participant{
				{Lease: 101, Weight: 30, Since: noon.Add(-83 * time.Minute), Host: "batch-7", Process: 4711, About: "report.go:88 team=finance"},
				{Lease: 102, Weight: 8, Since: noon.Add(-61 * time.Second), Host: "web-1", Process: 815, About: "pool.go:12", Pooled: true},
				{Lease: 103, Weight: 2, Since: noon.Add(-42 * time.Millisecond), Host: "web-2", Process: 816, About: "\x1b[31mpool.go:12", Revoked: true},
			},
			Waiters: []scope.Participant{
				{Weight: 5, Since: noon.Add(-7 * time.Second), Host: "web-3", Process: 99, About: "handler.go:140"},
				{Weight: 1, Host: "web-4", Process: 100, About: "handler.go:140"}, {Weight: 1, Host: "web-4", Process: 100, About: "handler.go:151"},
			}}},
		{State: scope.State{Name: "deploy", Capacity: 1, Effective: 1}},
		{State: scope.State{Name: "emails", Capacity: 600, Effective: 600, InUse: 512, Window: scope.Duration(time.Minute)}},
		{State: scope.State{Name: "gpu", Capacity: 8, Effective: 8, InUse: 8, Holders: make([]scope.Participant, 4)}},
		{State: scope.State{Name: "legacy", Capacity: 10, Effective: 10, InUse: 4, Draining: true, Holders: make([]scope.Participant, 4)}},
		{State: scope.State{Name: "payments-reconciliation-eu-central-1", Capacity: 12, Effective: 12, InUse: 19, Waiting: 1_204,
			Holders: make([]scope.Participant, 19), Waiters: make([]scope.Participant, 1_204)}},
		{State: scope.State{Name: "thumbnails", Capacity: 500, Effective: 120, InUse: 117, Ramp: 20, Holders: make([]scope.Participant, 117)}},
		{State: scope.State{Name: "broken"}, failure: "semaphore \"broken\": unexpected reply of redis, which this version does not support"},
	}
	for i := range semaphores {
		semaphores[i].now, semaphores[i].TTL = noon, scope.Duration(15*time.Second)
	}
	return page{semaphores: semaphores}
}

// A screen is a model that tests drive with messages.
type screen struct {
	t *testing.T
	model
	from *fake
}

func newScreen(t *testing.T, width, height int) *screen {
	t.Helper()
	from := &fake{page: incident()}
	s := &screen{t, newModel(t.Context(), from, "redis://10.0.0.3:6379", time.Second, ""), from}
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	s.polled(noon)
	return s
}

// send sends a message to the model.
func (s *screen) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	next, cmd := s.Update(msg)
	s.model = next.(model)
	s.fits()
	return cmd
}

// polled sends the page of the source to the model.
func (s *screen) polled(at time.Time) {
	s.t.Helper()
	result, err := s.from.poll(s.t.Context(), "", "")
	s.send(polledMsg{result, err, at, 0})
}

// press presses keys, by name, and runs their commands.
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

// choose moves the cursor to a semaphore.
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

// fits fails unless the screen fits the terminal.
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

// want fails unless the screen contains texts.
func (s *screen) want(texts ...string) {
	s.t.Helper()
	all := strings.Join(strings.Fields(s.text()), " ") // ignoring line breaks
	for _, text := range texts {
		if !strings.Contains(all, text) {
			s.t.Errorf("no %q in\n%s", text, s.text())
		}
	}
}

// wantDone fails unless exactly these actions were performed.
func (s *screen) wantDone(want ...string) {
	s.t.Helper()
	if got := fmt.Sprint(s.from.done); got != fmt.Sprint(want) {
		s.t.Errorf("performed %s, want %v", got, want)
	}
	s.from.done = nil
}

// golden compares the screen with a golden file.
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
		s.t.Errorf("%s: %v (go test -update rewrites it)\n%s\nwant\n%s", file, err, got, want)
	}
}

var errRejected = errors.New("connection refused")
