//go:build linux && !sema_portable

package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

func wantText(t *testing.T, value fmt.Stringer, want string) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, value); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestSemaphore_String(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 3)
	p := mustAcquire(t, sem, 2)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := sem.Acquire(ctx, 2)
		ended <- err
	}()
	awaitStats(t, sem, 2, 1)
	title := fmt.Sprintf("host semaphore %q: ", name)
	wantText(t, sem, title+"2 of 3 in use, 1 waiting")
	cancel()
	<-ended
	wantText(t, p, fmt.Sprintf("permit of %q: 2, held", name))
	p.Release()
	wantText(t, p, fmt.Sprintf("permit of %q: 2, not held", name))
	path := filepath.Join(dir, name+".sema")
	if err := writeInto(path, []byte("garbage ")); err != nil {
		t.Fatal(err)
	}
	wantText(t, sem, title+"its file is damaged")
	sem.Close()
	wantText(t, sem, title+"closed")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantText(t, new(host.Semaphore), "host semaphore: zero value, open it with host.Open")
	wantText(t, (*host.Semaphore)(nil), "<nil>")
}

// TestHolders_CommandIsPrintable starts a process with escape sequences in its command
// line.
func TestHolders_CommandIsPrintable(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	other := proctest.Start(t, "user", dir, name, "2", "\x1b[2J\x1b]0;owned\x07", "two\nlines", strings.Repeat("long ", 1000))
	other.Expect("open")
	other.Send("acquire 1")
	other.Expect("acquired 1")
	holders, err := inspectHolders(sem)
	if err != nil || len(holders) != 1 || holders[0].PID != other.Pid {
		t.Fatalf("%+v %v", holders, err)
	}
	command := holders[0].Command
	if strings.ContainsAny(command, "\x1b\x07\n") || !strings.Contains(command, "\ufffd[2J\ufffd]0;owned\ufffd two lines long") {
		t.Errorf("%q", command)
	}
	if len(command) > 1024 || !strings.HasSuffix(command, "…") {
		t.Errorf("%d bytes", len(command))
	}
}
