package fleettest

import "github.com/sema-go/sema/fleet/protocol"

func settle(lease protocol.Seq, granted, cost int64) protocol.Op {
	return protocol.Op{Verb: protocol.Settle, Ticket: 1000, Lease: lease, Least: granted, Weight: cost}
}

// settleScripts check the settlement of rates.
var settleScripts = []script{
	{"a grant of a rate is settled by its session alone, at a lower or higher cost", rateOf(4, long), func(s *client) {
		id, other := s.open(), s.open()
		leases := s.granted(id, 2, acquire(1, 2), acquire(2, 2))
		s.wantResults(s.send(other, acquire(1, 1)))
		s.wantResults(s.send(other, settle(leases[0], 2, 0)))
		s.wantInUse(4, 1)
		s.send(id, settle(leases[0], 2, 1)) // a refund of one
		s.wantResults(s.send(other), protocol.Granted)
		s.wantInUse(4, 0)
		s.send(id, settle(leases[1], 2, 0), settle(leases[1], 2, 3)) // the last one counts
		s.wantInUse(5, 0)                                            // a debt
		s.wantResults(s.send(id, try(3, 1)), protocol.Full)
		s.send(id, settle(leases[1], 2, 0), settle(leases[0], 2, 0))
		s.wantInUse(1, 0)
	}},
	{"the excess of a grant that has left the window is charged from now", rateOf(4, short), func(s *client) {
		s.needClock()
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 2))[0]
		s.pass(s.ttl() + 1)
		s.send(id, settle(lease, 2, 0))
		s.wantInUse(0, 0)
		s.send(id, settle(lease, 2, 5)) // the cost counts as the capacity; charged is the cost minus what was granted
		s.wantInUse(2, 0)
		s.pass(s.ttl() + 1)
		s.heartbeat(id)
		s.wantInUse(0, 0)
	}},
	{"a settlement of no grant charges its cost from now", rateOf(4, long), func(s *client) {
		id := s.open()
		s.granted(id, 1, acquire(1, 1))
		s.wantResults(s.send(id, settle(0, 0, 2)))
		s.wantInUse(3, 0)
		s.send(id, settle(0, 0, 0))
		s.send(id, settle(0, protocol.MaxCapacity, protocol.MaxCapacity))
		s.wantInUse(3, 0)
	}},
	{"a repeated settlement counts once", rateOf(4, long), func(s *client) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 2))[0]
		s.send(id, settle(0, 0, 1), settle(lease, 2, 1))
		s.wantStatus(s.repeat(id, settle(0, 0, 1), settle(lease, 2, 1)), protocol.Repeated)
		s.wantInUse(2, 0)
	}},
	{"a cancelled acquire that was granted costs nothing", rateOf(4, long), func(s *client) {
		id, other := s.open(), s.open()
		ops := []protocol.Op{acquire(1, 3)}
		s.wantResults(s.send(id, ops...), protocol.Granted)
		s.seqs[id]++ // the reply was lost, so that it is not acknowledged
		s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ops: []protocol.Op{cancel(1)}})
		s.wantInUse(0, 0)
		s.seqs[id]++
		s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ops: []protocol.Op{acquire(2, 2), cancel(2), acquire(3, 1)}})
		s.wantInUse(1, 0)
		s.granted(other, 1, acquire(1, 3))
	}},
	{"the grant of an ended session stays charged, and no other session can settle it", rateOf(4, long), func(s *client) {
		id, other := s.open(), s.open()
		lease := s.granted(id, 1, acquire(1, 2))[0]
		s.seqs[id]++
		s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], End: true})
		s.send(other, settle(lease, 2, 0), settle(lease, 2, 4))
		s.wantInUse(2, 0)
	}},
	{"an invalid settlement is rejected, and the rest of the batch is applied", rateOf(4, long), func(s *client) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 2))[0]
		s.wantResults(s.send(id, settle(lease, 2, -1), settle(lease, -2, 1), acquire(2, 1)), protocol.Invalid, protocol.Invalid, protocol.Granted)
		s.wantInUse(3, 0)
	}},
	{"leases of a semaphore that is not a rate are not settled", protocol.Config{Capacity: 2}, func(s *client) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 2))[0]
		s.wantResults(s.send(id, settle(lease, 2, 1)), protocol.Invalid)
		s.wantInUse(2, 0)
	}},
}

// rateOf returns the configuration of a rate whose TTL is the window.
func rateOf(capacity int64, window protocol.Micros) protocol.Config {
	return protocol.Config{Kind: protocol.Rate, Capacity: capacity, Window: window, TTL: window}
}

// numberedScripts check numbered permits.
var numberedScripts = []script{
	{"leases have the lowest free numbers", protocol.Config{Capacity: 6, Numbered: true}, func(s *client) {
		id, other := s.open(), s.open()
		leases := s.wantSlots(s.send(id, acquire(1, 2), acquire(2, 1), acquire(3, 2)), "0-1", "2", "3-4")
		s.send(id, release(leases[0]), release(leases[1]))
		s.wantSlots(s.send(other, acquire(1, 4)), "0-2,5")
		s.wantStoredSlots("3-4", "0-2,5")
	}},
	{"a part of a lease has the highest of its numbers", protocol.Config{Capacity: 6, Numbered: true}, func(s *client) {
		id := s.open()
		whole := s.wantSlots(s.send(id, acquire(1, 5)), "0-4")[0]
		part := s.wantSlots(s.send(id, split(2, whole, 2)), "3-4")[0]
		s.send(id, protocol.Op{Verb: protocol.Release, Lease: whole, Weight: 1})
		s.wantStoredSlots("0-1", "3-4")
		s.send(id, release(part))
		s.wantSlots(s.send(id, acquire(3, 3)), "2-4")
	}},
	{"numbers above a lowered capacity are not assigned again", protocol.Config{Capacity: 4, Numbered: true}, func(s *client) {
		id := s.open()
		leases := s.wantSlots(s.send(id, acquire(1, 1), acquire(2, 1), acquire(3, 1), acquire(4, 1)), "0", "1", "2", "3")
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 2 }))
		s.send(id, release(leases[0]), release(leases[1]), release(leases[3]))
		s.wantSlots(s.send(id, acquire(5, 1)), "0")
		s.send(id, release(leases[2]))
		s.wantSlots(s.send(id, acquire(6, 1)), "1")
	}},
	{"numbers that a batch frees are free for its acquires", protocol.Config{Capacity: 4, Numbered: true}, func(s *client) {
		id := s.open()
		leases := s.wantSlots(s.send(id, acquire(1, 1), acquire(2, 1), acquire(3, 2)), "0", "1", "2-3")
		leases = append(leases, s.wantSlots(s.send(id, release(leases[1]), acquire(4, 1)), "1")...)
		s.wantSlots(s.send(id, release(leases[0]), protocol.Op{Verb: protocol.Release, Lease: leases[2], Weight: 1}, acquire(5, 2)), "0,3")
		s.wantStoredSlots("2", "1", "0,3")
	}},
	{"blocks and configurations that cannot be numbered are rejected", protocol.Config{Capacity: 2, Numbered: true}, func(s *client) {
		id := s.open()
		s.wantResults(s.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Pooled: true}), protocol.Invalid)
		for what, change := range map[string]func(*protocol.Config){
			"a share":         func(c *protocol.Config) { c.Whole = 5 },
			"too many":        func(c *protocol.Config) { c.Capacity = protocol.MaxNumbered + 1 },
			"without numbers": func(c *protocol.Config) { c.Numbered = false },
		} {
			if err := s.configure(change); err == nil {
				s.fail("configured: %s", what)
			}
		}
	}},
}

// wantSlots returns the leases that a reply grants, and fails unless they have these slots.
func (s *client) wantSlots(r protocol.Reply, want ...protocol.Slots) (leases []protocol.Seq) {
	var got []protocol.Slots
	for _, one := range r.Results {
		if one.Kind == protocol.Granted {
			got, leases = append(got, one.Slots), append(leases, one.Lease)
		}
	}
	if len(got) != len(want) {
		s.fail("granted %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.fail("granted %q, want %q", got, want)
		}
	}
	return leases
}

// wantStoredSlots fails unless the leases, by Seq, have these slots.
func (s *client) wantStoredSlots(want ...protocol.Slots) {
	var got []protocol.Slots
	for _, l := range s.inspect().Leases {
		got = append(got, l.Slots)
	}
	if len(got) != len(want) {
		s.fail("slots %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.fail("slots %q, want %q", got, want)
		}
	}
}
