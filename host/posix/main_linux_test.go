//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]func(*proctest.Child){
		"hold":  hold,
		"post":  post,
		"crowd": crowd,
	})
}

// uniqueName returns a unique name, which is unlinked when the test ends.
func uniqueName(t testing.TB) string {
	t.Helper()
	name := "/sema-test-" + rand.Text()
	t.Cleanup(func() { posix.Unlink(name) })
	return name
}

// create returns a new named semaphore.
func create(t testing.TB, value uint32) *posix.Semaphore {
	t.Helper()
	s, err := posix.Create(uniqueName(t), 0o600, value, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openAgain opens the same semaphore again.
func openAgain(t testing.TB, s *posix.Semaphore) *posix.Semaphore {
	t.Helper()
	again, err := posix.Open(s.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

// sharedPage returns a page that other processes can map by the path of its file.
func sharedPage(t testing.TB) (path string, page []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "page")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	page, err = syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return path, page // stays mapped: a waiter attached to it may be woken late
}

// attachments returns n Semaphores of the same semaphore that share no state in this
// process, as if they were in different processes.
func attachments(t testing.TB, n int, value uint32) []*posix.Semaphore {
	t.Helper()
	_, page := sharedPage(t)
	if _, err := posix.Init(page, value); err != nil {
		t.Fatal(err)
	}
	all := make([]*posix.Semaphore, n)
	for i := range all {
		s, err := posix.Attach(page)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		all[i] = s
	}
	return all
}

// startWait starts a Wait and returns a channel that receives its result.
func startWait(ctx context.Context, s *posix.Semaphore) <-chan error {
	c := make(chan error, 1)
	go func() { c <- s.Wait(ctx) }()
	return c
}

const resultTimeout = time.Minute

// result waits for the result of a Wait.
func result(t testing.TB, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(resultTimeout):
		t.Fatal("still waiting: a wake-up was lost")
	}
	panic("not reached")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(resultTimeout); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not true after %v: %s", resultTimeout, what)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func awaitSleepers(t testing.TB, s *posix.Semaphore, n int) {
	t.Helper()
	eventually(t, "as many threads asleep as expected", func() bool { return s.Sleepers() == n })
}

func awaitQueued(t testing.TB, s *posix.Semaphore, n int) {
	t.Helper()
	eventually(t, "as many goroutines queued as expected", func() bool { return s.Queued() == n })
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func wantState(t testing.TB, s *posix.Semaphore, value, waiters uint32) {
	t.Helper()
	if s.Value() != value || s.Waiters() != waiters {
		t.Fatalf("value %d and %d waiters, want %d and %d", s.Value(), s.Waiters(), value, waiters)
	}
}
