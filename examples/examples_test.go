// Package examples_test builds and runs the programs of this directory.
package examples_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// runTimeout bounds the time of one run. It ends a program that hangs, also on a machine
// that is slow and busy.
const runTimeout = 3 * time.Minute

// binaries is the directory of what build has built.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "examples"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(binaries)
	os.Exit(code)
}

var (
	buildMu sync.Mutex
	builds  = map[string]func() error{} // guarded by buildMu: by name, each builds once
)

// build builds the program of a directory and returns the path of its binary. It has the
// race detector if this test has, unless flags are given.
func build(t *testing.T, name string, flags ...string) string {
	t.Helper()
	file := filepath.Join(binaries, name)
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	if len(flags) == 0 {
		flags = raceFlags
	}
	buildMu.Lock()
	if builds[name] == nil {
		builds[name] = sync.OnceValue(func() error {
			args := append([]string{"build", "-o", file}, flags...)
			output, err := exec.Command("go", append(args, "./"+name)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w\n%s", err, output)
			}
			return nil
		})
	}
	once := builds[name]
	buildMu.Unlock()
	if err := once(); err != nil {
		t.Fatal(err)
	}
	return file
}

// A printed is what a program has printed, and how it ended.
type printed struct {
	out, err string
	state    *os.ProcessState
	took     time.Duration
}

// run runs a program, and fails the test unless it ends with the exit code.
func run(t *testing.T, wantCode int, program string, args ...string) printed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != wantCode {
		t.Fatalf("exit code %d, want %d\n%s%s", code, wantCode, &stdout, &stderr)
	}
	return printed{stdout.String(), stderr.String(), cmd.ProcessState, took}
}

// numbers returns the numbers in what was printed that the groups of a pattern match, and
// fails the test if it does not match.
func (p printed) numbers(t *testing.T, pattern string) []int {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(p.out)
	if match == nil {
		t.Fatalf("printed %q, want a line %q", p.out, pattern)
	}
	var numbers []int
	for _, text := range match[1:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// TestExamples_AreAllRun checks that each directory has a test that runs it, and a line in
// the README.
func TestExamples_AreAllRun(t *testing.T) {
	t.Parallel()
	read := func(pattern string) (text string) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text += string(content)
		}
		return text
	}
	tests, readme := read("*_test.go"), read("README.md")
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "internal" {
			continue
		}
		if !regexp.MustCompile(`build\(t, "` + e.Name() + `"`).MatchString(tests) {
			t.Errorf("no test runs %s", e.Name())
		}
		if !strings.Contains(readme, "]("+e.Name()+")") || !strings.Contains(readme, "go run ./examples/"+e.Name()) {
			t.Errorf("README.md does not list %s with its command", e.Name())
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
