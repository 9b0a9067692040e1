package commandtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// A Terminal is a real terminal of tmux, with a shell that has the program's path in $SEMA.
type Terminal struct {
	t      testing.TB
	tmux   string
	socket string
}

// NewTerminal opens a terminal of a size. variables are for the shell: "NO_COLOR=1".
func NewTerminal(t testing.TB, columns, rows int, variables ...string) *Terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &Terminal{t: t, tmux: storetest.Need(t, "tmux", "tmux"), socket: filepath.Join(t.TempDir(), "tmux")}
	environment := append([]string{"env", "-i", "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "PS1=$ ", variable + "=1", "SEMA=" + self}, variables...)
	shell := append(environment, "/bin/sh")
	w.run(append([]string{"new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows)}, shell...)...)
	t.Cleanup(func() { w.try("kill-server") })
	w.Await("$")
	return w
}

func (w *Terminal) try(args ...string) (string, error) {
	cmd := exec.Command(w.tmux, append([]string{"-u", "-S", w.socket, "-f", os.DevNull}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *Terminal) run(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// Type types text literally.
func (w *Terminal) Type(text string) { w.t.Helper(); w.run("send-keys", "-l", text) }

// Press presses keys, given by tmux's names: "Enter", "Down", "C-c".
func (w *Terminal) Press(keys ...string) {
	w.t.Helper()
	w.run(append([]string{"send-keys"}, keys...)...)
}

// Enter types a line and presses Enter.
func (w *Terminal) Enter(line string) { w.t.Helper(); w.Type(line); w.Press("Enter") }

// Resize changes the size of the terminal.
func (w *Terminal) Resize(columns, rows int) {
	w.t.Helper()
	w.run("resize-window", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows))
}

// Screen returns the text on the screen.
func (w *Terminal) Screen() string { w.t.Helper(); return w.run("capture-pane", "-p") }

// Coloured returns the screen with its colours, as escape sequences.
func (w *Terminal) Coloured() string { w.t.Helper(); return w.run("capture-pane", "-p", "-e") }

// Mode returns a tmux flag of the terminal, such as "alternate_on".
func (w *Terminal) Mode(flag string) string {
	w.t.Helper()
	return strings.TrimSpace(w.run("display-message", "-p", "#{"+flag+"}"))
}

// Await waits until the screen contains a text, which may be wrapped, and returns the screen.
func (w *Terminal) Await(text string) string {
	w.t.Helper()
	return w.AwaitThat(strconv.Quote(text), func(screen string) bool {
		return strings.Contains(screen, text) || strings.Contains(strings.Join(strings.Fields(screen), " "), text)
	})
}

// AwaitThat waits until a condition holds for the screen, and returns the screen.
func (w *Terminal) AwaitThat(wanted string, is func(screen string) bool) (screen string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if screen = w.Screen(); is(screen) {
			return screen
		}
	}
	w.t.Fatalf("no %s on the screen:\n%s", wanted, screen)
	panic("not reached")
}
