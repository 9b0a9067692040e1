package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestStore_PrintsItsPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sema.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enginetest.Prints(t, s, "sqlite "+s.engine.path)
	r, err := OpenReader(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	enginetest.Prints(t, r, "sqlite "+s.engine.path+", for reading")
}
