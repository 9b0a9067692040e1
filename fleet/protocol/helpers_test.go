package protocol_test

import (
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// Each test in this file covers a flaw of an earlier draft of the protocol, or of other
// protocols.

// A testStore is a state with a clock that the test advances.
type testStore struct {
	t     *testing.T
	state *protocol.State
	now   protocol.Micros
	seqs  map[protocol.Session]uint64
	acks  map[protocol.Session]uint64
}

func newTestStore(t *testing.T, c protocol.Config) *testStore {
	t.Helper()
	if c.TTL == 0 {
		c.TTL = ttl
	}
	e := &testStore{t: t, now: 1_000_000 * ms, seqs: map[protocol.Session]uint64{}, acks: map[protocol.Session]uint64{}}
	state, err := protocol.New(e.now, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.state = state
	return e
}

// tester opens the sessions of the tests, without a key.
var tester = protocol.Opener{Client: protocol.Client{Instance: "test"}}

func (e *testStore) open() protocol.Session {
	id, _, err := e.state.Open(e.now, tester, protocol.Version)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

// send sends the next batch of a session and acknowledges the results with the one after it.
func (e *testStore) send(id protocol.Session, ops ...protocol.Op) protocol.Reply {
	e.t.Helper()
	e.seqs[id]++
	r := e.state.Apply(e.now, protocol.Batch{Session: id, Seq: e.seqs[id], Ack: e.acks[id], Ops: ops})
	for _, f := range r.Results {
		e.acks[id] = max(e.acks[id], f.N)
	}
	if err := e.state.Check(); err != nil {
		e.t.Fatal(err)
	}
	return r
}

func acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight}
}

func try(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Try: true}
}

func release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}

// wantResults fails the test unless the results are of these kinds, in order.
func wantResults(t *testing.T, r protocol.Reply, want ...protocol.ResultKind) []protocol.Result {
	t.Helper()
	var kinds []protocol.ResultKind
	for _, f := range r.Results {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, want) {
		t.Fatalf("results %v, want %v", kinds, want)
	}
	return r.Results
}

func wantStatus(t *testing.T, r protocol.Reply, want protocol.Status) {
	t.Helper()
	if r.Status != want {
		t.Fatalf("status %d, want %d", r.Status, want)
	}
}
