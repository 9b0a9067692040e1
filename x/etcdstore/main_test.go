package etcdstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/proctest"
)

// fewHistories are for the race detector. make conformance leads the engine through
// more.
const fewHistories = 40

var histories = flag.Int("histories", defaultHistories, "how many random histories each store is led through")

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // at a time; the suite goes on until there were enough histories
	flag.Set("test.parallel", "8") // they mostly wait
	proctest.Main(ending{m}, roles)
}

// roles are what other processes of the tests are.
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

const testTTL = protocol.Micros(15 * time.Second / time.Microsecond)

// openAt opens a store that is closed when the test ends.
func openAt(t testing.TB, c *etcdtest.Cluster, prefix string) *Store {
	t.Helper()
	return openBy(t, Options{Endpoints: c.Addresses(), Prefix: prefix})
}

func openBy(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
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
	return s.sayBy(s.store, ops...)
}

// sayBy says it through another store.
func (s *speaker) sayBy(by *Store, ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r, err := by.Apply(ctx, s.name, s.next(ops...))
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

func wantHeld(t testing.TB, s *Store, name string, want ...protocol.Seq) {
	t.Helper()
	snapshot, err := s.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	var got []protocol.Seq
	for _, l := range snapshot.Leases {
		got = append(got, l.Seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("leases %v of %q are out, want %v", got, name, want)
	}
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("there is no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q has no %q in it", err, part)
		}
	}
}

// A guarded counter is in memory that processes may share: how much is held, and how
// often that was more than may be.
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
