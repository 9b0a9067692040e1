package sqlitestore

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
)

var rounds = flag.Int("stress.rounds", 20, "how often a process is killed at work")

func TestMain(m *testing.M) {
	proctest.Main(leakCheck{m}, map[string]func(*proctest.Child){"owner": ownFile, "victim": workUntilKilled})
}

// leakCheck runs the tests and fails if goroutines are left.
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

const testTTL = protocol.Micros(15 * time.Second / time.Microsecond)

// openAt opens a file that is closed when the test ends.
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

// edit changes a file that nobody has open.
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

var errTest = errors.New("broken by the test")
