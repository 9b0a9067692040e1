package pgstore

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/proctest"
)

var (
	histories = flag.Int("histories", defaultHistories, "how many random histories the engine is led through")
	pairs     = flag.Int("pairs", 20_000, "how many pairs before the tables are looked at")
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // at a time; the suite goes on until there were enough histories
	flag.Set("test.parallel", "8") // they mostly wait
	proctest.Main(ending{m}, map[string]func(*proctest.Child){"visitor": visitTable, "victim": holdUntilKilled})
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

const testTTL = protocol.Micros(15 * time.Second / time.Microsecond)

// newSchema is a name that nobody else has.
func newSchema() string { return fmt.Sprintf("test_%016x", rand.Uint64()) }

// openIn opens a schema of the shared server. What was opened is closed when the
// test ends.
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

// exec runs a statement as a person would.
func exec(t testing.TB, s *Store, statement string, arguments ...any) {
	t.Helper()
	if _, err := s.pool.Exec(ctx, statement, arguments...); err != nil {
		t.Fatal(err)
	}
}

// A speaker is one session on a semaphore.
type speaker struct {
	t     testing.TB
	store *Store
	name  string
	id    protocol.Session
	seq   uint64
	ack   uint64
}

func begin(t testing.TB, s *Store, name string, c protocol.Config) *speaker {
	t.Helper()
	if c.TTL == 0 {
		c.TTL = testTTL
	}
	c.Protocol = protocol.Version
	id, _, err := s.Open(ctx, name, c, "instance of "+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return &speaker{t: t, store: s, name: name, id: id}
}

// next is the next batch of the session.
func (s *speaker) next(ops ...protocol.Op) protocol.Batch {
	s.seq++
	return protocol.Batch{Session: s.id, Seq: s.seq, Ack: s.ack, Ops: ops}
}

// hear notes which fates there were.
func (s *speaker) hear(r protocol.Reply) protocol.Reply {
	for _, f := range r.Fates {
		s.ack = max(s.ack, f.N)
	}
	return r
}

// say says a batch that must be heard.
func (s *speaker) say(ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r, err := s.store.Apply(ctx, s.name, s.next(ops...))
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Verdict != protocol.Heard {
		s.t.Fatalf("batch %d of session %d: verdict %d", s.seq, s.id, r.Verdict)
	}
	return s.hear(r)
}

// granted says a batch and returns the leases that are granted by it.
func (s *speaker) granted(n int, ops ...protocol.Op) (leases []protocol.Seq) {
	s.t.Helper()
	for _, f := range s.say(ops...).Fates {
		if f.Kind == protocol.Granted {
			leases = append(leases, f.Lease)
		}
	}
	if len(leases) != n {
		s.t.Fatalf("%d leases were granted, want %d", len(leases), n)
	}
	return leases
}

func acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Meta: "for a test"}
}

func release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}

// held is the seqs of the leases that are out, and the tickets in line.
func held(t testing.TB, s *Store, name string) (leases []protocol.Seq, line []protocol.Ticket) {
	t.Helper()
	snapshot, err := s.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range snapshot.Leases {
		leases = append(leases, l.Seq)
	}
	for _, w := range snapshot.Line {
		line = append(line, w.Ticket)
	}
	return leases, line
}

func wantHeld(t testing.TB, s *Store, name string, want ...protocol.Seq) {
	t.Helper()
	if got, _ := held(t, s, name); !slices.Equal(got, want) {
		t.Errorf("leases %v of %q are out, want %v", got, name, want)
	}
}
