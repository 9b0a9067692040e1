// Package sessiontest drives one session of a fleet store, batch by batch. It is for a
// store's own tests of failures that only this store has: a server that fails, a file
// that is full, the contents of its tables. The test decides which session sends what
// and when, and ends at the first unexpected reply.
//
// The package fleet/fleettest tests what every store has to do; such tests do not
// belong here. Tests of clients, which renew, wait and lose leases, use package fleet.
package sessiontest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// TTL is the TTL of a semaphore for which a test sets none.
const TTL = protocol.Micros(15 * time.Second / time.Microsecond)

// A Store is the part of a fleet.Store that a session uses.
type Store interface {
	Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error)
	Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
}

// A Session is a session on the semaphore Name. It is not safe for concurrent use. A test
// may change Store if another store takes over, and Seq if a batch was not applied.
type Session struct {
	Store Store
	Name  string
	ID    protocol.Session
	Seq   uint64 // of the last batch
	ack   uint64
	t     testing.TB
}

// Instance returns the instance that opens the sessions of a test.
func Instance(t testing.TB) string { return "instance of " + t.Name() }

// Owner owns the sessions of all tests, in all processes.
var Owner = protocol.Owner{Key: protocol.Key{'s', 'e', 's', 's', 'i', 'o', 'n', 't', 'e', 's', 't'}}

// Opener returns an opener for sessions of an instance.
func Opener(instance string) protocol.Opener {
	return protocol.Opener{Client: protocol.Client{Instance: instance}, Owner: Owner}
}

// Begin creates the semaphore if it does not exist, and opens a session on it.
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

// Next returns the next batch, for the test to apply.
func (s *Session) Next(ops ...protocol.Op) protocol.Batch {
	s.Seq++
	return protocol.Batch{Session: s.ID, Owner: Owner, Seq: s.Seq, Ack: s.ack, Ops: ops}
}

// Receive records the results of a reply; the next batch acknowledges them.
func (s *Session) Receive(r protocol.Reply) protocol.Reply {
	for _, f := range r.Results {
		s.ack = max(s.ack, f.N)
	}
	return r
}

// Send sends the next batch, which must be applied, and returns the reply.
func (s *Session) Send(ops ...protocol.Op) protocol.Reply {
	s.t.Helper()
	return s.SendTo(s.Store, ops...)
}

// SendTo sends the next batch to another store; see Send.
func (s *Session) SendTo(by Store, ops ...protocol.Op) protocol.Reply {
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
	return s.Receive(r)
}

// WantUnknown sends a batch, and fails unless the session is unknown.
func (s *Session) WantUnknown() {
	s.t.Helper()
	if r := s.apply(s.Store); r.Status != protocol.Unknown {
		s.t.Errorf("status %d, want unknown session", r.Status)
	}
}

// Granted sends a batch and returns the leases of the reply, of which there must be n.
func (s *Session) Granted(n int, ops ...protocol.Op) (leases []protocol.Seq) {
	s.t.Helper()
	for _, f := range s.Send(ops...).Results {
		if f.Kind == protocol.Granted {
			leases = append(leases, f.Lease)
		}
	}
	if len(leases) != n {
		s.t.Fatalf("%d leases granted, want %d", len(leases), n)
	}
	return leases
}

// AwaitGrant sends batches until a lease is granted.
func (s *Session) AwaitGrant(within time.Duration) protocol.Result {
	s.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		for _, f := range s.Send().Results {
			if f.Kind == protocol.Granted {
				return f
			}
		}
		if time.Since(began) > within {
			s.t.Fatalf("nothing was granted in %v", within)
		}
	}
}

// LastLease returns the youngest lease of the session in the store, 0 if it has none.
func (s *Session) LastLease() (lease protocol.Seq) {
	s.t.Helper()
	for _, l := range inspect(s.t, s.Store, s.Name).Leases {
		if l.Session == s.ID {
			lease = l.Seq
		}
	}
	return lease
}

// Acquire returns an acquire, with a holder that a test can search for.
func Acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Details: &protocol.Details{Holder: "for a test"}}
}

// Release returns a release of a whole lease.
func Release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}

// Held returns the leases and the queued tickets of all sessions.
func Held(t testing.TB, store Store, name string) (leases []protocol.Seq, queue []protocol.Ticket) {
	t.Helper()
	snapshot := inspect(t, store, name)
	for _, w := range snapshot.Queue {
		queue = append(queue, w.Ticket)
	}
	return seqs(snapshot), queue
}

// WantHeld fails unless exactly these leases are held and their weights are what is in use.
func WantHeld(t testing.TB, store Store, name string, want ...protocol.Seq) {
	t.Helper()
	snapshot := inspect(t, store, name)
	var weight int64
	for _, l := range snapshot.Leases {
		weight += l.Weight
	}
	if got := seqs(snapshot); !slices.Equal(got, want) || snapshot.InUse != weight {
		t.Errorf("leases %v of %q with a weight of %d, %d in use; want leases %v", got, name, weight, snapshot.InUse, want)
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
