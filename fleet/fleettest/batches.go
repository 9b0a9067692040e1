package fleettest

import (
	"context"
	"reflect"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// batchScripts are about being heard: once, in order, and by nobody else.
var batchScripts = []script{
	{"a batch that is repeated is answered and not done again", protocol.Config{Capacity: 3}, func(s *speaker) {
		id := s.open()
		b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1), acquire(2, 1)}}
		first := s.apply(b)
		s.wantStatus(first, protocol.Applied)
		for range 3 {
			again := s.apply(b)
			s.wantStatus(again, protocol.Repeated)
			if !reflect.DeepEqual(again.Results, first.Results) {
				s.fail("answered again with %+v, want %+v", again.Results, first.Results)
			}
		}
		s.wantInUse(2, 0)
	}},
	{"an older batch is refused", protocol.Config{Capacity: 1}, func(s *speaker) {
		id := s.open()
		s.granted(id, 1, acquire(1, 1))
		s.say(id)
		s.wantStatus(s.apply(protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(9, 1)}}), protocol.Stale)
		s.wantInUse(1, 0)
	}},
	{"numbers of batches may leap, for who takes over a session", protocol.Config{Capacity: 2}, func(s *speaker) {
		id := s.open()
		s.granted(id, 1, acquire(1, 1))
		const later = 1_800_000_000_000_000 // microseconds
		s.seqs[id] = later
		lease := s.granted(id, 1, acquire(2, 1))[0]
		s.wantStatus(s.apply(protocol.Batch{Session: id, Seq: 3, Ops: []protocol.Op{release(lease)}}), protocol.Stale)
		s.wantInUse(2, 0)
		s.say(id, release(lease))
		s.wantInUse(1, 0)
	}},
	{"a session that was not opened is not known", protocol.Config{Capacity: 1}, func(s *speaker) {
		id := s.open()
		s.wantStatus(s.apply(protocol.Batch{Session: id + 100, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}), protocol.Unknown)
		s.wantInUse(0, 0)
	}},
	{"sessions are numbered apart", protocol.Config{Capacity: 1}, func(s *speaker) {
		seen := map[protocol.Session]bool{}
		for range 20 {
			id := s.open()
			if seen[id] {
				s.fail("session %d was opened twice", id)
			}
			seen[id] = true
		}
	}},
	{"who says goodbye leaves nothing behind", protocol.Config{Capacity: 1}, func(s *speaker) {
		id, other := s.open(), s.open()
		s.granted(id, 1, acquire(1, 1), acquire(2, 1))
		s.wantResults(s.say(other, acquire(1, 1)))
		s.apply(protocol.Batch{Session: id, Seq: 2, End: true})
		s.wantResults(s.say(other), protocol.Granted)
		s.wantStatus(s.say(id), protocol.Unknown)
	}},
	{"a result is told until it is acknowledged", protocol.Config{Capacity: 1}, func(s *speaker) {
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
		s.wantResults(s.say(id))
	}},
	{"a cancel takes back what was granted and not heard of", protocol.Config{Capacity: 1}, func(s *speaker) {
		id := s.open()
		s.apply(protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}})
		s.wantResults(s.apply(protocol.Batch{Session: id, Seq: 2, Ops: []protocol.Op{cancel(1)}}))
		s.wantInUse(0, 0)
	}},
	{"a release of what is not there is moot", protocol.Config{Capacity: 1}, func(s *speaker) {
		id, other := s.open(), s.open()
		lease := s.granted(id, 1, acquire(1, 1))[0]
		s.say(other, release(lease)) // another's
		s.wantInUse(1, 0)
		s.say(id, release(lease), release(lease))
		s.wantInUse(0, 0)
	}},
	{"a batch whose caller gave up is done wholly or not at all", protocol.Config{Capacity: 100}, func(s *speaker) {
		id := s.open()
		for n := range 20 {
			ticket := protocol.Ticket(10 * n)
			ops := []protocol.Op{acquire(ticket+1, 1), acquire(ticket+2, 1), acquire(ticket+3, 1), acquire(ticket+4, 1)}
			b := protocol.Batch{Session: id, Owner: owner, Seq: uint64(n + 1), Ack: s.acks[id], Ops: ops}
			ctx, cancel := context.WithTimeout(s.ctx, time.Duration(n)*50*time.Microsecond)
			_, _ = s.store.Apply(ctx, s.name, b) // too late for some
			cancel()
			s.wantResults(s.apply(b), protocol.Granted, protocol.Granted, protocol.Granted, protocol.Granted)
			s.wantInUse(4*int64(n+1), 0)
		}
	}},
}
