//go:build linux

package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/host"
)

func wantText(t *testing.T, value fmt.Stringer, want string) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, value); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestSemaphore_PrintsItsFigures(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 3)
	p := mustAcquire(t, sem, 2)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := sem.Acquire(ctx, 2)
		ended <- err
	}()
	settles(t, sem, 2, 1)
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
