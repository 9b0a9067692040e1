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

// build builds the program of a directory and returns the path of its binary.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	if output, err := exec.Command("go", "build", "-o", file, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return file
}

// TestExamples_AreAllRun checks that each directory has a test in this file.
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
		if last := lines[len(lines)-1]; last != "12 jobs done, 0 cancelled, never more than 4 permits in use" {
			t.Errorf("%s: last line %q", order, last)
		}
	}
	var exit *exec.ExitError
	if err := exec.Command(program, "-order", "none").Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("invalid order: %v, want exit code 2", err)
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
		t.Errorf("0 shares: %v, want exit code 64", err)
	}
}
