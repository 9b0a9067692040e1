package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// ownerScripts check sessions of several owners, and the Highest that clients report.
var ownerScripts = []script{
	{"a batch with another key is of an unknown session", protocol.Config{Capacity: 1}, func(s *client) {
		s.rejectsOwners(owner, protocol.Owner{Key: protocol.NewKey()}, protocol.Owner{Key: protocol.Key{1}})
	}},
	{"a batch of another principal is of an unknown session", protocol.Config{Capacity: 1}, func(s *client) {
		by := protocol.Owner{Key: owner.Key, Principal: "token:a"}
		s.rejectsOwners(by, protocol.Owner{Key: by.Key, Principal: "token:b"}, protocol.Owner{Key: by.Key}, protocol.Owner{Key: by.Key, Principal: "token:a "})
	}},
	{"Seqs are higher than what a client reports", protocol.Config{Capacity: 10}, func(s *client) {
		id := s.open()
		first := s.granted(id, 1, acquire(1, 1))[0]
		seen := first + 1_000_000
		s.seqs[id]++
		r := s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Highest: seen, Ops: []protocol.Op{acquire(2, 1)}})
		if lease := s.wantResults(r, protocol.Granted)[0].Lease; lease <= seen {
			s.fail("lease %d, although a client has seen %d", lease, seen)
		}
		seen += 1_000_000
		if _, _, err := s.store.Open(s.ctx, s.name, s.config, protocol.Opener{Owner: owner, Highest: seen}); err != nil {
			s.fail("%w", err)
		}
		lease := s.granted(id, 1, acquire(3, 1))[0]
		if lease <= seen {
			s.fail("lease %d, although a client that opened a session has seen %d", lease, seen)
		}
		s.seqs[id]++
		r = s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Highest: lease + 2*protocol.MaxLead, Ops: []protocol.Op{acquire(4, 1)}})
		if next := s.wantResults(r, protocol.Granted)[0].Lease; next > lease+1_000_000 {
			s.fail("lease %d after %d: a client exhausts the numbers", next, lease)
		}
	}},
}

// rejectsOwners fails unless a session accepts only batches of its owner.
func (s *client) rejectsOwners(by protocol.Owner, others ...protocol.Owner) {
	id, _, err := s.store.Open(s.ctx, s.name, s.config, protocol.Opener{Client: protocol.Client{Instance: "fleettest"}, Owner: by})
	s.must(err)
	b := protocol.Batch{Session: id, Owner: by, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
	lease := s.wantResults(s.apply(b), protocol.Granted)[0].Lease
	if stored := s.inspect().Sessions[0].Owner.Principal; stored != by.Principal {
		if stored == "" {
			return // a service in front of another store, which ignores the principals of clients
		}
		s.fail("principal %q was stored as %q", by.Principal, stored)
	}
	for _, other := range others {
		for _, b := range []protocol.Batch{
			{Ops: []protocol.Op{release(lease)}},
			{Ops: []protocol.Op{acquire(2, 1)}},
			{Ack: 1},
			{End: true},
		} {
			b.Session, b.Owner, b.Seq = id, other, 2
			r := s.apply(b)
			s.wantStatus(r, protocol.Unknown)
			if len(r.Results) > 0 {
				s.fail("another owner receives %v", r.Results)
			}
		}
	}
	s.wantInUse(1, 0)
	r := s.apply(protocol.Batch{Session: id, Owner: by, Seq: 2, Ack: 1, Ops: []protocol.Op{release(lease), acquire(2, 1)}})
	s.wantStatus(r, protocol.Applied)
	s.wantResults(r, protocol.Granted)
}
