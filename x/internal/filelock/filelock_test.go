package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/x/internal/filelock"
)

func TestTry_OneOwnerAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	want := func(f *os.File, want bool) {
		t.Helper()
		if ours, err := filelock.Try(f); err != nil || ours != want {
			t.Errorf("locked %v, error %v, want %v", ours, err, want)
		}
	}
	one, other := open(), open()
	want(one, true)
	want(other, false)
	filelock.Unlock(one)
	want(other, true)
	other.Close() // also drops the lock
	want(one, true)
}
