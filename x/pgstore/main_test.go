package pgstore

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

var (
	histories = flag.Int("histories", defaultHistories, "number of random histories that are applied to the store")
	pairs     = flag.Int("pairs", 20_000, "number of pairs before the statistics of the tables are checked")
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // per run; the suite repeats it until there were enough histories
	flag.Set("test.parallel", "8") // tests mostly wait
	proctest.Main(ending{m}, map[string]func(*proctest.Child){"contender": enterCountedSection, "holder": holdUntilKilled})
}

// ending runs the tests, stops the server and fails if goroutines are left.
type ending struct{ *testing.M }

func (e ending) Run() int {
	code := e.M.Run()
	for _, err := range []error{pgtest.Shared.End(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
	return code
}

var ctx = context.Background()

// newSchema returns a name that is not in use.
func newSchema() string { return fmt.Sprintf("test_%016x", rand.Uint64()) }

// openIn opens a store in a schema of the shared server, until the test ends.
func openIn(t testing.TB, schema string, o Options) *Store {
	t.Helper()
	o.Schema = schema
	return openAt(t, pgtest.Shared.Server(t).URL(), o)
}

func openAt(t testing.TB, database string, o Options) *Store {
	t.Helper()
	s, err := Open(ctx, database, o)
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

// exec runs a statement through the pool, outside of the API.
func exec(t testing.TB, s *Store, statement string, arguments ...any) {
	t.Helper()
	if _, err := s.pool.Exec(ctx, statement, arguments...); err != nil {
		t.Fatal(err)
	}
}
