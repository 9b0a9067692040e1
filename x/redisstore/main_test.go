package redisstore

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

var histories = flag.Int("histories", defaultHistories, "how many random histories a server is led through")

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.checks", "5")  // at a time; the suite goes on until there were enough histories
	flag.Set("test.parallel", "8") // they mostly wait
	code := m.Run()
	if err := redistest.Shared.End(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	// The client looks at a cluster or at Sentinels again after a pause, which
	// outlasts it.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var ctx = context.Background()

const (
	ms      = protocol.Micros(1000)
	testTTL = 15000 * ms
)

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
	id, _, err := s.Open(ctx, name, c, "instance/of/"+t.Name())
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

// said says the next batch, whatever comes of it.
func (s *speaker) said(ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r, err := s.store.Apply(ctx, s.name, s.next(ops...))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.hear(r)
}

// say says a batch that must be heard.
func (s *speaker) say(ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r := s.said(ops...)
	if r.Verdict != protocol.Heard {
		s.t.Fatalf("batch %d of session %d: verdict %d", s.seq, s.id, r.Verdict)
	}
	return r
}

func (s *speaker) wantUnknown() {
	s.t.Helper()
	if r := s.said(); r.Verdict != protocol.Unknown {
		s.t.Errorf("verdict %d, want that the session is not known", r.Verdict)
	}
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

// awaitGrant speaks until there is a grant, and returns it and how long it took.
func (s *speaker) awaitGrant(within time.Duration) (protocol.Fate, time.Duration) {
	s.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		for _, f := range s.say().Fates {
			if f.Kind == protocol.Granted {
				return f, time.Since(began)
			}
		}
		if time.Since(began) > within {
			s.t.Fatalf("nothing was granted in %v", within)
		}
	}
}

func acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Meta: "for a test"}
}

func release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}

// wantHeld compares the leases that are out.
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
	if !slices.Equal(got, want) || snapshot.InUse != int64(len(want)) {
		t.Errorf("leases %v of %q are out, %d in use, want %v", got, name, snapshot.InUse, want)
	}
}
