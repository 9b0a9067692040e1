// Package examples_test builds and runs the programs of this directory.
package examples_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// build builds the program of a directory and returns its file.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	if said, err := exec.Command("go", "build", "-o", file, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return file
}

// Every directory has a test here.
func TestExamples_AreAllRun(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("examples_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.Contains(string(source), fmt.Sprintf("build(t, %q)", e.Name())) {
			t.Errorf("no test runs %s", e.Name())
		}
	}
}

func TestLimit_DrawsPermitsInUse(t *testing.T) {
	t.Parallel()
	program := build(t, "limit")
	for _, order := range []string{"fair", "unfair", "lifo"} {
		out, err := exec.Command(program, "-capacity", "4", "-jobs", "12", "-order", order).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		drawn := regexp.MustCompile(`^█{0,4}·{0,4}  [0-4] of 4 in use, \d+ waiting$`)
		for _, line := range lines[:len(lines)-1] {
			if bar, _, _ := strings.Cut(line, " "); !drawn.MatchString(line) || len([]rune(bar)) != 4 {
				t.Errorf("%s: drawn %q", order, line)
			}
		}
		if last := lines[len(lines)-1]; last != "12 jobs done, 0 given up, never more than 4 permits out" {
			t.Errorf("%s: at the end %q", order, last)
		}
	}
	var exit *exec.ExitError
	if err := exec.Command(program, "-order", "none").Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("a wrong order: %v, want exit code 2", err)
	}
}

func TestShare_RunsACommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("package host is for Unix")
	}
	t.Parallel()
	program, name := build(t, "share"), "sema-examples-test"
	out, err := exec.Command(program, name, "2", "sh", "-c", "echo shared; exit 3").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "shared\n" {
		t.Errorf("%q, %v; want the command's output and exit code 3", out, err)
	}
	if err := exec.Command(program, name, "0", "true").Run(); !errors.As(err, &exit) || exit.ExitCode() != 64 {
		t.Errorf("no shares: %v, want exit code 64", err)
	}
}
