//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sema-go/sema/host/posix"
)

func wantText(t *testing.T, value any, want string) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, value); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestSemaphore_String(t *testing.T) {
	s := create(t, 3)
	title := fmt.Sprintf("POSIX semaphore %q: ", s.Name())
	wantText(t, s, title+"value 3, 0 waiting")
	gate := gateOf(t, s, 3)
	p, err := gate.Acquire(t.Context(), 1)
	wantErr(t, err, nil)
	wantText(t, gate, fmt.Sprintf("POSIX gate %q: 1 of 3 in use, 0 waiting", s.Name()))
	wantText(t, p, fmt.Sprintf("permit of %q: 1, held", s.Name()))
	p.Release()
	s.Close()
	wantText(t, s, title+"closed")
	wantText(t, gate, fmt.Sprintf("POSIX gate %q: closed", s.Name()))
	wantText(t, new(posix.Gate), "POSIX gate: zero value, create it with posix.AsGate")
	wantText(t, (*posix.Gate)(nil), "<nil>")
	wantText(t, new(posix.Semaphore), "POSIX semaphore: closed")
	wantText(t, (*posix.Semaphore)(nil), "<nil>")
}

// TestList_ErrorsQuoteNames creates a file with an escape sequence in its name: any user
// can create files in the directory of semaphores.
func TestList_ErrorsQuoteNames(t *testing.T) {
	name := "/sema-\x1b[2J" + strings.TrimPrefix(uniqueName(t), "/")
	file := "/dev/shm/sem." + name[1:]
	if err := os.Symlink("/dev/null", file); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	_, err := posix.Open(name)
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%q", err)
	}
	list, err := posix.List()
	wantErr(t, err, nil)
	for _, info := range list {
		if info.Name == name && (info.Err == nil || strings.Contains(info.Err.Error(), "\x1b")) {
			t.Errorf("%q", info.Err)
		}
	}
}
