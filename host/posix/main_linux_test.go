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

// freshName is a name that nobody else has, unlinked when the test ends.
func freshName(t testing.TB) string {
	t.Helper()
	name := "/sema-test-" + rand.Text()
	t.Cleanup(func() { posix.Unlink(name) })
	return name
}

// fresh is a named semaphore of the test's own.
func fresh(t testing.TB, value uint32) *posix.Semaphore {
	t.Helper()
	s, err := posix.Create(freshName(t), 0o600, value, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// reopened is the same semaphore opened again.
func reopened(t testing.TB, s *posix.Semaphore) *posix.Semaphore {
	t.Helper()
	again, err := posix.Open(s.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

// sharedPage is a page that other processes can map by the file's name.
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
	return path, page // stays mapped: who was attached to it may be woken late
}

// strangers are n semaphores that are one, but know nothing of each other, as
// if they were in different processes.
func strangers(t testing.TB, n int, value uint32) []*posix.Semaphore {
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

// waiting starts a Wait and returns where its result will be.
func waiting(ctx context.Context, s *posix.Semaphore) <-chan error {
	c := make(chan error, 1)
	go func() { c <- s.Wait(ctx) }()
	return c
}

const patience = time.Minute

// result waits for what a Wait came to.
func result(t testing.TB, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("still waiting: a wake-up was lost")
	}
	panic("not reached")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func asleep(t testing.TB, s *posix.Semaphore, n int) {
	t.Helper()
	eventually(t, "as many threads asleep as expected", func() bool { return s.Sleepers() == n })
}

func queued(t testing.TB, s *posix.Semaphore, n int) {
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
