package etcdstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// fewHistories is the default under the race detector. make conformance applies more.
const fewHistories = 40

var histories = flag.Int("histories", defaultHistories, "number of random histories that are applied to each store")

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // per run; the suite repeats it until there were enough histories
	flag.Set("test.parallel", "8") // tests mostly wait
	proctest.Main(ending{m}, roles)
}

// roles are the functions that child processes of the tests run.
var roles = map[string]func(*proctest.Child){}

// ending runs the tests, stops the server and fails if goroutines are left.
type ending struct{ *testing.M }

func (e ending) Run() int {
	code := e.M.Run()
	for _, err := range []error{etcdtest.Shared.End(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
	return code
}

var ctx = context.Background()

// openAt opens a store that is closed when the test ends.
func openAt(t testing.TB, c *etcdtest.Cluster, prefix string) *Store {
	t.Helper()
	return openBy(t, Options{Endpoints: c.Addresses(), Prefix: prefix})
}

// openBy opens a store without a check, so that operations meet the faults.
func openBy(t testing.TB, o Options) *Store {
	t.Helper()
	o.Lazy = true
	s, err := Open(ctx, o)
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

// A guarded counter may be in memory that processes share. It counts how much is held, and
// how often that was more than the capacity.
type guarded struct {
	inside, most, entered, over atomic.Int64
}

func (g *guarded) enter(capacity int64) {
	inside := g.inside.Add(1)
	g.entered.Add(1)
	if inside > capacity {
		g.over.Add(1)
	}
	for most := g.most.Load(); inside > most && !g.most.CompareAndSwap(most, inside); most = g.most.Load() {
	}
}

func (g *guarded) leave() { g.inside.Add(-1) }
