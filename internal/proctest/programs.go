package proctest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

// Need calls [storetest.Need].
func Need(t testing.TB, program, debianPackage string) (path string) {
	t.Helper()
	return storetest.Need(t, program, debianPackage)
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
