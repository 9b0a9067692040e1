// Package sessiontest speaks to a store of fleet as one session, batch by batch.
// For an engine's own tests of what only it can do wrong: a server that fails, a
// file that is full, what is in its tables. There a test decides who says what and
// when, and ends at the first answer that it does not expect.
//
// What every engine has to do is in fleet/fleettest, and is not tested here again.
// Tests of clients, that renew and wait and lose leases, use package fleet itself.
package sessiontest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// TTL is that of a semaphore for which a test names none.
const TTL = protocol.Micros(15 * time.Second / time.Microsecond)

// A Store is what a session needs of a fleet.Store.
type Store interface {
	Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error)
	Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
}

// A Session is one on the semaphore Name. It is not safe for concurrent use. A test
// may change Store, when another takes over, and Seq, when a batch came to nothing.
type Session struct {
	Store Store
	Name  string
	ID    protocol.Session
	Seq   uint64 // of the batch that was made last
	ack   uint64
	t     testing.TB
}

// Instance is who begins the sessions of a test.
func Instance(t testing.TB) string { return "instance of " + t.Name() }

// Owner has all sessions of tests, in whichever process they are.
var Owner = protocol.Owner{Key: protocol.Key{'s', 'e', 's', 's', 'i', 'o', 'n', 't', 'e', 's', 't'}}

// Opener describes an instance that opens sessions of tests.
func Opener(instance string) protocol.Opener {
	return protocol.Opener{Client: protocol.Client{Instance: instance}, Owner: Owner}
}

// Begin makes the semaphore unless it is there, and opens a session on it.
func Begin(t testing.TB, store Store, name string, c protocol.Config) *Session {
	t.Helper()
	if c.TTL == 0 {
		c.TTL = TTL
	}
	c.Protocol = protocol.Version
	id, _, err := store.Open(context.Background(), name, c, Opener(Instance(t)))
	if err != nil {
		t.Fatal(err)
	}
	return Opened(t, store, name, id)
}

// Opened returns a session that the test has opened with an [Opener].
func Opened(t testing.TB, store Store, name string, id protocol.Session) *Session {
	return &Session{Store: store, Name: name, ID: id, t: t}
}

// Next makes the next batch, for the test to apply.
func (s *Session) Next(ops ...protocol.Op) protocol.Batch {
	s.Seq++
	return protocol.Batch{Session: s.ID, Owner: Owner, Seq: s.Seq, Ack: s.ack, Ops: ops}
}

// Hear notes the results of a reply, which the next batch acknowledges.
func (s *Session) Hear(r protocol.Reply) protocol.Reply {
	for _, f := range r.Results {
		s.ack = max(s.ack, f.N)
	}
	return r
}

// Say applies the next batch, which must be heard.
func (s *Session) Say(ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	return s.SayBy(s.Store, ops...)
}

// SayBy is Say by way of another store.
func (s *Session) SayBy(by Store, ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r := s.apply(by, ops...)
	if r.Status != protocol.Applied {
		s.t.Fatalf("batch %d of session %d: status %d", s.Seq, s.ID, r.Status)
	}
	return r
}

func (s *Session) apply(by Store, ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	r, err := by.Apply(context.Background(), s.Name, s.Next(ops...))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Hear(r)
}

// WantUnknown says a batch, and the store must not know the session.
func (s *Session) WantUnknown() {
	s.t.Helper()
	if r := s.apply(s.Store); r.Status != protocol.Unknown {
		s.t.Errorf("status %d, want that the session is not known", r.Status)
	}
}

// Granted says a batch and returns the leases of the reply, of which there must be n.
func (s *Session) Granted(n int, ops ...protocol.Op) (leases []protocol.Seq) {
	s.t.Helper()
	for _, f := range s.Say(ops...).Results {
		if f.Kind == protocol.Granted {
			leases = append(leases, f.Lease)
		}
	}
	if len(leases) != n {
		s.t.Fatalf("%d leases were granted, want %d", len(leases), n)
	}
	return leases
}

// AwaitGrant speaks until something is granted.
func (s *Session) AwaitGrant(within time.Duration) protocol.Result {
	s.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		for _, f := range s.Say().Results {
			if f.Kind == protocol.Granted {
				return f
			}
		}
		if time.Since(began) > within {
			s.t.Fatalf("nothing was granted in %v", within)
		}
	}
}

// LastLease is the youngest that the store has of the session, 0 if it has none.
func (s *Session) LastLease() (lease protocol.Seq) {
	s.t.Helper()
	for _, l := range inspect(s.t, s.Store, s.Name).Leases {
		if l.Session == s.ID {
			lease = l.Seq
		}
	}
	return lease
}

// Acquire asks for permits, with a note that can be found again.
func Acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Details: protocol.Details{Holder: "for a test"}}
}

// Release gives a lease back.
func Release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}

// Held is the leases that are out and the tickets in line, whoever's they are.
func Held(t testing.TB, store Store, name string) (leases []protocol.Seq, line []protocol.Ticket) {
	t.Helper()
	snapshot := inspect(t, store, name)
	for _, w := range snapshot.Queue {
		line = append(line, w.Ticket)
	}
	return seqs(snapshot), line
}

// WantHeld has just these leases be out, and what is in use be their weights.
func WantHeld(t testing.TB, store Store, name string, want ...protocol.Seq) {
	t.Helper()
	snapshot := inspect(t, store, name)
	var weight int64
	for _, l := range snapshot.Leases {
		weight += l.Weight
	}
	if got := seqs(snapshot); !slices.Equal(got, want) || snapshot.InUse != weight {
		t.Errorf("leases %v of %q are out, which weigh %d, and %d is in use; want %v", got, name, weight, snapshot.InUse, want)
	}
}

func inspect(t testing.TB, store Store, name string) protocol.Snapshot {
	t.Helper()
	snapshot, err := store.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func seqs(s protocol.Snapshot) (leases []protocol.Seq) {
	for _, l := range s.Leases {
		leases = append(leases, l.Seq)
	}
	return leases
}
