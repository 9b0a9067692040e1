package redisstore

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/internal/storetest/redistest"
)

var histories = flag.Int("histories", defaultHistories, "number of random histories to run against a server")

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // at a time; the suite repeats until it has run enough histories
	flag.Set("test.parallel", "8") // the tests mostly wait
	code := m.Run()
	if err := redistest.Shared.End(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	// The client library refreshes the topology of a cluster or of Sentinels after a
	// pause. The goroutine that pauses outlives the client.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var ctx = context.Background()

// openAt opens a store that is closed when the test ends.
func openAt(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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

func openServer(t testing.TB, s *redistest.Server) *Store {
	t.Helper()
	return openAt(t, Options{Addresses: []string{s.Address}})
}
