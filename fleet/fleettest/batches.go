package fleettest

import (
	"context"
	"reflect"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// batchScripts check that batches are applied once, in order, and only for their own session.
var batchScripts = []script{
	{"a repeated batch gets the same reply and is not applied again", protocol.Config{Capacity: 3}, func(s *client) {
		id := s.open()
		b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1), acquire(2, 1)}}
		first := s.apply(b)
		s.wantStatus(first, protocol.Applied)
		for range 3 {
			again := s.apply(b)
			s.wantStatus(again, protocol.Repeated)
			if !reflect.DeepEqual(again.Results, first.Results) {
				s.fail("repeated batch: results %+v, want %+v", again.Results, first.Results)
			}
		}
		s.wantInUse(2, 0)
	}},
	{"an older batch is rejected", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		s.granted(id, 1, acquire(1, 1))
		s.send(id)
		s.wantStatus(s.apply(protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(9, 1)}}), protocol.Stale)
		s.wantInUse(1, 0)
	}},
	{"batch numbers may skip, for a client that takes over a session", protocol.Config{Capacity: 2}, func(s *client) {
		id := s.open()
		s.granted(id, 1, acquire(1, 1))
		const later = 1_800_000_000_000_000 // microseconds
		s.seqs[id] = later
		lease := s.granted(id, 1, acquire(2, 1))[0]
		s.wantStatus(s.apply(protocol.Batch{Session: id, Seq: 3, Ops: []protocol.Op{release(lease)}}), protocol.Stale)
		s.wantInUse(2, 0)
		s.send(id, release(lease))
		s.wantInUse(1, 0)
	}},
	{"a session that was not opened is unknown", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		s.wantStatus(s.apply(protocol.Batch{Session: id + 100, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}), protocol.Unknown)
		s.wantInUse(0, 0)
	}},
	{"each session has a number of its own", protocol.Config{Capacity: 1}, func(s *client) {
		seen := map[protocol.Session]bool{}
		for range 20 {
			id := s.open()
			if seen[id] {
				s.fail("session %d was opened twice", id)
			}
			seen[id] = true
		}
	}},
	{"the end of a session frees its leases and tickets", protocol.Config{Capacity: 1}, func(s *client) {
		id, other := s.open(), s.open()
		s.granted(id, 1, acquire(1, 1), acquire(2, 1))
		s.wantResults(s.send(other, acquire(1, 1)))
		s.apply(protocol.Batch{Session: id, Seq: 2, End: true})
		s.wantResults(s.send(other), protocol.Granted)
		s.wantStatus(s.send(id), protocol.Unknown)
	}},
	{"a result is repeated until it is acknowledged", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		for seq := range uint64(3) {
			ops := []protocol.Op{}
			if seq == 0 {
				ops = append(ops, acquire(1, 1))
			}
			r := s.apply(protocol.Batch{Session: id, Seq: seq + 1, Ops: ops})
			s.wantResults(r, protocol.Granted)
		}
		s.seqs[id] = 3
		s.wantResults(s.send(id))
	}},
	{"a cancel releases a lease whose grant was not acknowledged", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		s.apply(protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}})
		s.wantResults(s.apply(protocol.Batch{Session: id, Seq: 2, Ops: []protocol.Op{cancel(1)}}))
		s.wantInUse(0, 0)
	}},
	{"a release of another session's lease, or a second one, is ignored", protocol.Config{Capacity: 1}, func(s *client) {
		id, other := s.open(), s.open()
		lease := s.granted(id, 1, acquire(1, 1))[0]
		s.send(other, release(lease)) // lease of another session
		s.wantInUse(1, 0)
		s.send(id, release(lease), release(lease))
		s.wantInUse(0, 0)
	}},
	{"a batch whose caller gave up is applied wholly or not at all", protocol.Config{Capacity: 100}, func(s *client) {
		id := s.open()
		for n := range 20 {
			ticket := protocol.Ticket(10 * n)
			ops := []protocol.Op{acquire(ticket+1, 1), acquire(ticket+2, 1), acquire(ticket+3, 1), acquire(ticket+4, 1)}
			b := protocol.Batch{Session: id, Owner: owner, Seq: uint64(n + 1), Ack: s.acks[id], Ops: ops}
			ctx, cancel := context.WithTimeout(s.ctx, time.Duration(n)*50*time.Microsecond)
			_, _ = s.store.Apply(ctx, s.name, b) // the context may end first
			cancel()
			s.wantResults(s.apply(b), protocol.Granted, protocol.Granted, protocol.Granted, protocol.Granted)
			s.wantInUse(4*int64(n+1), 0)
		}
	}},
}
