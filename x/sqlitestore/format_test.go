package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

func TestStore_String(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sema.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Prints(t, s, "sqlite "+s.shared.path)
	r, err := OpenReader(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	storetest.Prints(t, r, "sqlite "+s.shared.path+", for reading")
}
