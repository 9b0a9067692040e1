package protocol_test

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestState_RejectsBatchesOfAnotherOwner(t *testing.T) {
	t.Parallel()
	owner := protocol.Owner{Key: protocol.NewKey(), Principal: "token:a"}
	for name, other := range map[string]protocol.Owner{
		"no owner":          {},
		"another key":       {Key: protocol.NewKey(), Principal: owner.Principal},
		"another principal": {Key: owner.Key, Principal: "token:b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newTestStore(t, protocol.Config{Capacity: 1})
			id, _, err := e.state.Open(e.now, protocol.Opener{Owner: owner}, protocol.Version)
			if err != nil {
				t.Fatal(err)
			}
			granted := e.state.Apply(e.now, protocol.Batch{Session: id, Owner: owner, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}})
			lease := wantResults(t, granted, protocol.Granted)[0].Lease
			seen := e.state.Snapshot().Sessions[0].Renewed
			e.now += ttl / 6
			for _, b := range []protocol.Batch{
				{End: true},
				{Ops: []protocol.Op{release(lease)}},
				{Ack: 1, Highest: lease + 1000},
			} {
				b.Session, b.Owner, b.Seq = id, other, 2
				r := e.state.Apply(e.now, b)
				wantStatus(t, r, protocol.Unknown)
				if len(r.Results) > 0 {
					t.Errorf("results of another owner: %v", r.Results)
				}
			}
			s := e.state.Snapshot()
			if len(s.Leases) != 1 || s.Sessions[0].Renewed != seen {
				t.Errorf("%d leases, renewed: %v; want the lease as it was", len(s.Leases), s.Sessions[0].Renewed != seen)
			}
			next := e.state.Apply(e.now, protocol.Batch{Session: id, Owner: owner, Seq: 2, Ack: 1, Ops: []protocol.Op{release(lease), acquire(2, 1)}})
			if next := wantResults(t, next, protocol.Granted)[0].Lease; next != lease+1 {
				t.Errorf("lease %d after %d: Highest of another owner was applied", next, lease)
			}
		})
	}
}

func TestState_SeqsRiseAboveWhatClientsHaveSeen(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 10})
	id := e.open()
	first := wantResults(t, e.send(id, acquire(1, 1)), protocol.Granted)[0].Lease
	seen := first + 1_000_000
	b := protocol.Batch{Session: id, Seq: 2, Ack: 1, Highest: seen, Ops: []protocol.Op{acquire(2, 1)}}
	if lease := wantResults(t, e.state.Apply(e.now, b), protocol.Granted)[0].Lease; lease != seen+1 {
		t.Errorf("lease %d, want %d", lease, seen+1)
	}
	if _, _, err := e.state.Open(e.now, protocol.Opener{Highest: seen + 50}, 0); err != nil {
		t.Fatal(err)
	}
	b = protocol.Batch{Session: id, Seq: 3, Ack: 2, Ops: []protocol.Op{acquire(3, 1)}}
	if lease := wantResults(t, e.state.Apply(e.now, b), protocol.Granted)[0].Lease; lease != seen+51 {
		t.Errorf("lease %d, want %d", lease, seen+51)
	}
	b = protocol.Batch{Session: id, Seq: 4, Ack: 3, Highest: 1 << 63, Ops: []protocol.Op{acquire(4, 1)}}
	if lease := wantResults(t, e.state.Apply(e.now, b), protocol.Granted)[0].Lease; lease != seen+52 {
		t.Errorf("lease %d, want %d: a client must not exhaust the numbers", lease, seen+52)
	}
}
