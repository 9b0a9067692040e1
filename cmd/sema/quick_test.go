package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// alone returns the quick program in a directory without the complete one. It is a link: a copy
// could not be started while another test starts a program, which inherits the open file.
func alone(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(binary))
	if err := os.Link(binary, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestQuick_RunsWithoutTheCompleteProgram checks that the quick program starts no other one for a
// semaphore of this machine.
func TestQuick_RunsWithoutTheCompleteProgram(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.program = alone(t)
	s.must("run", "x", "-n", "2", "--", "go", "version")
	s.must("run", "--store", s.store, "x", "--wait=1s", "--slots", "1", "--", "go", "version")
	s.expect(exit.NotFound, []string{"no-such-program"}, "run", "x", "--", "no-such-program")
	s.expect(exit.Usage, []string{"--weight 3 is more than -n 2"}, "run", "x", "-n", "2", "-w", "3", "--", "go", "version")
}

// TestQuick_WithoutTheCompleteProgram checks the error for what the quick program cannot do.
func TestQuick_WithoutTheCompleteProgram(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.program = alone(t)
	s.env = []string{"PATH=" + t.TempDir()}
	for _, args := range [][]string{{}, {"ls"}, {"run", "--help"}, {"run", "x"}, {"run", "x", "--store", "redis://h", "--", "true"}, {"run", "x", "--store", "nonsense", "--", "true"}} {
		r := s.expect(exit.Failed, []string{"there is no sema-full in " + filepath.Dir(s.program), "hint: install both programs"}, args...)
		if strings.Count(r.err, "\n") != 2 {
			t.Errorf("%q: printed\n%s", args, r.err)
		}
	}
}

// TestQuick_FindsTheCompleteProgram checks that it is found through a link and in PATH, and gets
// the arguments unchanged.
func TestQuick_FindsTheCompleteProgram(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "sema")
	if err := os.Symlink(binary, link); err != nil {
		t.Skipf("this system has no links: %v", err)
	}
	s := onHost(t)
	s.program = link
	s.must("run", "x", "--", "go", "version")
	s.expect(exit.Usage, []string{`unexpected argument "two words"`}, "show", "x", "two words")
	if got := s.must("ls", "-o", "json"); !strings.Contains(got, `"x"`) {
		t.Errorf("output %s", got)
	}
	s.program = alone(t)
	s.env = []string{"PATH=" + filepath.Dir(full)}
	s.must("ls")
}

// TestQuick_ImportsNoStore holds the reason for the quick program: it starts fast because it
// contains neither stores nor a server.
func TestQuick_ImportsNoStore(t *testing.T) {
	t.Parallel()
	output, err := exec.Command("go", "list", "-deps", "./quick").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(output)) {
		if path == "net/http" || strings.HasPrefix(path, "github.com/sema-go/sema/x/") || strings.HasPrefix(path, "github.com/charmbracelet/") {
			t.Errorf("the quick program imports %s", path)
		}
	}
}
