package sqlitestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

func openReader(t *testing.T, path string, o Options) *Reader {
	t.Helper()
	r, err := OpenReader(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// wantInUse fails the test unless a reader sees the given number of permits in use.
func wantInUse(t *testing.T, r *Reader, name string, want int64) {
	t.Helper()
	if snapshot, err := r.Inspect(ctx, name); err != nil || snapshot.InUse != want {
		t.Errorf("%d permits of %q are in use, %v, want %d", snapshot.InUse, name, err, want)
	}
}

func TestReader_SeesWhatTheOwnerCommits(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{Prefix: "p:"})
	session := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5})
	session.Granted(1, sessiontest.Acquire(1, 2))
	reader := openReader(t, path, Options{Prefix: "p:"})
	wantInUse(t, reader, "a", 2)
	session.Granted(1, sessiontest.Acquire(2, 1))
	wantInUse(t, reader, "a", 3)
	if page, err := reader.List(ctx, protocol.ListQuery{}); err != nil || len(page) != 1 || page[0].Name != "a" || page[0].InUse != 3 || page[0].Leases != 2 || page[0].Sessions != 1 {
		t.Errorf("List: %+v, %v", page, err)
	}
	if findings, err := reader.Examine(ctx); err != nil || len(fleet.Problems("", findings)) > 0 {
		t.Errorf("Examine: %v, %v", findings, err)
	}
	if _, err := reader.Inspect(ctx, "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Inspect of a missing semaphore: %v", err)
	}
}

// entries returns the names in a directory.
func entries(t *testing.T, directory string) (all []string) {
	t.Helper()
	found, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		all = append(all, e.Name())
	}
	return all
}

func TestReader_ChangesNothing(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5}).Granted(1, sessiontest.Acquire(1, 2))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	before, listed := read(t, path), entries(t, filepath.Dir(path))
	reader := openReader(t, path, Options{})
	wantInUse(t, reader, "a", 2)
	for what, err := range map[string]error{
		"Open": func() error {
			_, _, err := reader.Open(ctx, "b", protocol.Config{Capacity: 1}, protocol.Opener{Client: protocol.Client{Instance: "i"}})
			return err
		}(),
		"Apply": func() error {
			_, err := reader.Apply(ctx, "a", protocol.Batch{})
			return err
		}(),
		"Administer": reader.Administer(ctx, "a", fleet.Command{Delete: true}),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "mode=ro") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := read(t, path); after != before {
		t.Error("the file was changed")
	}
	if after := entries(t, filepath.Dir(path)); !slices.Equal(after, listed) {
		t.Errorf("files %q, want %q", after, listed)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestReader_CreatesNothing(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	if _, err := fleet.OpenStore(ctx, "sqlite://"+path+"?mode=ro"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if left := entries(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("%q were created", left)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(path, Options{}); err == nil || !strings.Contains(err.Error(), "the file is empty") {
		t.Errorf("an empty file: %v", err)
	}
	if content := read(t, path); content != "" {
		t.Error("the empty file got a schema")
	}
	edit(t, path, "PRAGMA application_id(7)")
	if _, err := OpenReader(path, Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a file of another program: %v", err)
	}
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, sema.ErrInvalid) {
		t.Errorf("Open with ReadOnly: %v", err)
	}
}

// TestReader_ReadsAfterACrash reads a file whose latest changes are only in the
// write-ahead log of a killed owner.
func TestReader_ReadsAfterACrash(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5}).Granted(1, sessiontest.Acquire(1, 2))
	left := newFile(t) // as the owner would leave it
	for _, suffix := range []string{"", "-wal"} {
		if err := os.WriteFile(left+suffix, []byte(read(t, path+suffix)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantInUse(t, openReader(t, left, Options{}), "a", 2)
}

func TestReader_EndsWithItsContextAndItsClose(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	openAt(t, path, Options{})
	reader := openReader(t, path, Options{})
	done, cancel := context.WithCancelCause(ctx)
	cancel(errTest)
	if _, err := reader.List(done, protocol.ListQuery{}); !errors.Is(err, errTest) {
		t.Errorf("List: %v", err)
	}
	if err := reader.Listen(done, "i", func(string) {}); !errors.Is(err, errTest) {
		t.Errorf("Listen: %v", err)
	}
	reader.Close()
	if _, err := reader.Ping(ctx); !errors.Is(err, errClosed) {
		t.Errorf("Ping: %v", err)
	}
}
