package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Need finds a program that a Debian package has. Without it the test is
// skipped, or fails where the environment says that nothing may be skipped.
func Need(t testing.TB, program, debianPackage string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	const advice = "%v; apt-get install -y --no-install-recommends %s"
	if os.Getenv("SEMA_TEST_REQUIRE") == "1" {
		t.Fatalf(advice, err, debianPackage)
	}
	t.Skipf(advice, err, debianPackage)
	panic("not reached")
}

// CompileC compiles a program of one file and returns its path.
func CompileC(t testing.TB, source string) string {
	t.Helper()
	gcc := Need(t, "gcc", "gcc libc6-dev")
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command(gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}
