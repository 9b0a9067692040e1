package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// binary is the path of semavet, built as for users.
var binary string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	directory, err := os.MkdirTemp("", "semavet")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	binary = filepath.Join(directory, "semavet")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const leaky = `package user

import (
	"context"

	"github.com/sema-go/sema"
)

func query(ctx context.Context, db sema.Gate) error {
	permit, err := db.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	return work(permit.Weight())
}

func work(int64) error { return nil }
`

const finding = "user.go:10:2: permit is not released on a path to the return in line 14; defer permit.Release() after checking err"

const leakyTest = `package user

import (
	"testing"

	"github.com/sema-go/sema"
)

func TestFull(t *testing.T) { sema.New(1).Acquire(t.Context(), 1) }
`

func TestCommand_RunsByItself(t *testing.T) {
	t.Parallel()
	dir := userModule(t, leaky)
	out, code := run(t, dir, binary, "./...")
	if code != 3 || !strings.Contains(out, finding) {
		t.Errorf("exit code %d, want 3 and a finding:\n%s", code, out)
	}
	if strings.Contains(out, "user_test.go") {
		t.Errorf("a test file was checked:\n%s", out)
	}
	if out, code := run(t, dir, binary, "-include-tests", "./..."); code != 3 || !strings.Contains(out, "user_test.go") {
		t.Errorf("exit code %d, want 3 and a finding in the test:\n%s", code, out)
	}
	if out, code := run(t, dir, binary, "-fix", "./..."); code != 0 {
		t.Errorf("-fix: exit code %d:\n%s", code, out)
	}
	if out, code := run(t, dir, binary, "./..."); code != 0 || out != "" {
		t.Errorf("after -fix: exit code %d:\n%s", code, out)
	}
	fixed, err := os.ReadFile(filepath.Join(dir, "user.go"))
	if err != nil || !strings.Contains(string(fixed), "\t}\n\tdefer permit.Release()\n\treturn work") {
		t.Errorf("%v\n%s", err, fixed)
	}
	if out, code := run(t, dir, binary, "./nothing"); code != 1 {
		t.Errorf("a missing package: exit code %d, want 1:\n%s", code, out)
	}
}

func TestCommand_RunsAsVetTool(t *testing.T) {
	t.Parallel()
	dir := userModule(t, leaky)
	out, code := run(t, dir, "go", "vet", "-vettool="+binary, "./...")
	if code != 1 || !strings.Contains(out, finding) || strings.Contains(out, "user_test.go") {
		t.Errorf("exit code %d, want 1 and a finding:\n%s", code, out)
	}
	out, code = run(t, dir, "go", "vet", "-vettool="+binary, "-include-tests", "./...")
	if code != 1 || !strings.Contains(out, "user_test.go") {
		t.Errorf("exit code %d, want 1 and a finding in the test:\n%s", code, out)
	}
	repaired := strings.Replace(leaky, "\treturn work", "\tdefer permit.Release()\n\treturn work", 1)
	if err := os.WriteFile(filepath.Join(dir, "user.go"), []byte(repaired), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := run(t, dir, "go", "vet", "-vettool="+binary, "./..."); code != 0 || out != "" {
		t.Errorf("exit code %d, want 0 and no output:\n%s", code, out)
	}
}

// userModule creates a module that uses the sema of this repository.
func userModule(t *testing.T, source string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       fmt.Sprintf("module example.com/user\n\ngo 1.26.0\n\nrequire github.com/sema-go/sema v0.0.0\n\nreplace github.com/sema-go/sema => %s\n", filepath.ToSlash(root)),
		"user.go":      source,
		"user_test.go": leakyTest,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, dir, name string, args ...string) (output string, code int) {
	t.Helper()
	return runWith(t, []string{"GOWORK=off", "GOFLAGS=", "GOPROXY=off"}, dir, name, args...)
}

func runWith(t *testing.T, env []string, dir, name string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
