package sqlitestore

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/internal/proctest"
)

var rounds = flag.Int("stress.rounds", 20, "number of times a working process is killed")

func TestMain(m *testing.M) {
	proctest.Main(leakCheck{m}, map[string]func(*proctest.Child){"owner": ownFile, "victim": workUntilKilled})
}

// A leakCheck runs the tests and fails if goroutines are left.
type leakCheck struct{ *testing.M }

func (l leakCheck) Run() int {
	code := l.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
	return code
}

var ctx = context.Background()

// openAt opens a file, and closes it when the test ends.
func openAt(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "fleet.db") }

// edit changes a file that no process has open.
func edit(t testing.TB, path, query string) {
	t.Helper()
	c, err := connect(dsn(path, true))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.exec(query), c.close()); err != nil {
		t.Fatal(err)
	}
}

var errTest = errors.New("broken by the test")
