package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// link creates a hard link to a file in another directory.
func link(t *testing.T, path string) string {
	t.Helper()
	second := filepath.Join(t.TempDir(), "second.db")
	if err := os.Link(path, second); err != nil {
		t.Fatal(err)
	}
	return second
}

// wantOneName fails the test unless a file with two hard links is rejected with an error
// that states it.
func wantOneName(t *testing.T, path string) {
	t.Helper()
	store, err := Open(path, Options{})
	if err == nil {
		store.Close()
		t.Fatalf("%s was opened although it has two hard links", path)
	}
	for _, part := range []string{path, "2 hard links", "-inum"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestOwner_RejectsAHardLink(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	openAt(t, path, Options{}).Close()
	second := link(t, path)
	wantOneName(t, path)
	wantOneName(t, second)
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{})
}

// TestOwner_KeepsAFileUnderAnyName opens a file under a second name, after the file was
// linked or moved there. The lock file of the second name is not locked.
func TestOwner_KeepsAFileUnderAnyName(t *testing.T) {
	t.Parallel()
	for what, give := range map[string]func(from, to string) error{"hard link": os.Link, "moved": os.Rename} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path, second := newFile(t), newFile(t)
			owner := proctest.Start(t, "owner", path)
			owner.Expect("open")
			if err := give(path, second); err != nil {
				t.Fatal(err)
			}
			if store, err := Open(second, Options{}); err == nil {
				store.Close()
				t.Error("two processes own one file")
			} else if what == "moved" && !errors.Is(err, ErrOwned) {
				t.Error(err)
			}
			owner.End()
		})
	}
	t.Run("one process", func(t *testing.T) {
		t.Parallel()
		path, moved := newFile(t), newFile(t)
		store := openAt(t, path, Options{})
		session := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9})
		second := link(t, path)
		if _, err := Open(second, Options{}); !errors.Is(err, ErrOwned) || !strings.Contains(err.Error(), path) {
			t.Errorf("opened under two names: %v", err)
		}
		if err := errors.Join(os.Remove(second), os.Rename(path, moved)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(moved, Options{}); !errors.Is(err, ErrOwned) || !strings.Contains(err.Error(), "this process has it open") {
			t.Errorf("opened under its new path: %v", err)
		}
		if err := os.Rename(moved, path); err != nil {
			t.Fatal(err)
		}
		session.Granted(1, sessiontest.Acquire(1, 1))
	})
}
