package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// lineScripts are about who is served, and when.
var lineScripts = []script{
	{"served in order, across sessions", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		var line []protocol.Session
		for range 10 {
			id := s.open()
			s.wantResults(s.say(id, acquire(1, 1)))
			line = append(line, id)
		}
		for i, id := range line {
			s.say(holder, release(lease))
			for _, other := range line[i+1:] {
				s.wantResults(s.say(other))
			}
			holder, lease = id, s.granted(id, 1)[0]
		}
	}},
	{"a heavy waiter is not overtaken by a stream of light ones", protocol.Config{Capacity: 4}, func(s *speaker) {
		light, heavy := s.open(), s.open()
		leases := s.granted(light, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.wantResults(s.say(heavy, acquire(1, 3)))
		s.wantResults(s.say(light, acquire(4, 1)))
		s.wantResults(s.say(light, try(5, 1)), protocol.Full)
		s.wantResults(s.say(light, release(leases[0])))
		s.wantResults(s.say(heavy))
		s.say(light, release(leases[1]))
		s.wantResults(s.say(heavy), protocol.Granted)
	}},
	{"one release serves as many as fit", protocol.Config{Capacity: 5}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 5))[0]
		s.wantResults(s.say(waiter, acquire(1, 2), acquire(2, 2), acquire(3, 2)))
		s.say(holder, release(lease))
		s.wantResults(s.say(waiter), protocol.Granted, protocol.Granted)
		s.wantInUse(4, 1)
	}},
	{"who leaves makes room for those behind", protocol.Config{Capacity: 2}, func(s *speaker) {
		holder, heavy, light := s.open(), s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.say(heavy, acquire(1, 2)))
		s.wantResults(s.say(light, acquire(1, 1)))
		s.say(heavy, cancel(1))
		s.wantResults(s.say(light), protocol.Granted)
	}},
	{"refusals say why", protocol.Config{Capacity: 2, MaxWaiters: 1}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 2))
		s.wantResults(s.say(waiter, acquire(1, 1), acquire(2, 1), acquire(3, 3), acquire(4, 0), try(5, 1)),
			protocol.QueueFull, protocol.TooLarge, protocol.Invalid, protocol.Full)
	}},
	{"with no waiters allowed an acquire is granted or rejected", protocol.Config{Capacity: 2, MaxWaiters: protocol.NoWaiters}, func(s *speaker) {
		id := s.open()
		s.wantResults(s.say(id, acquire(1, 2), acquire(2, 1)), protocol.Granted, protocol.QueueFull)
		s.wantInUse(2, 0)
	}},
	{"a lease is given back in parts", protocol.Config{Capacity: 5}, func(s *speaker) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 5))[0]
		s.say(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 2})
		s.wantInUse(3, 0)
		s.say(id, release(lease))
		s.wantInUse(0, 0)
	}},
	{"at 0 nothing is too large, and nobody is served", protocol.Config{Capacity: 0}, func(s *speaker) {
		id := s.open()
		s.wantResults(s.say(id, acquire(1, 100)))
		s.wantResults(s.say(id, try(2, 1)), protocol.Full)
		s.wantInUse(0, 1)
	}},
	{"large weights are exact", protocol.Config{Capacity: protocol.MaxCapacity}, func(s *speaker) {
		id := s.open()
		const most = protocol.MaxCapacity - 1
		results := s.wantResults(s.say(id, acquire(1, most), acquire(2, 1), acquire(3, 2)), protocol.Granted, protocol.Granted)
		if results[0].Weight != most {
			s.fail("granted %d, want %d", results[0].Weight, int64(most))
		}
		s.wantInUse(protocol.MaxCapacity, 1)
		s.say(id, protocol.Op{Verb: protocol.Release, Lease: results[0].Lease, Weight: most - 5})
		s.wantInUse(8, 0)
	}},
	{"a batch may be long, and a line", protocol.Config{Capacity: 3000}, func(s *speaker) {
		const each, batches = 512, 12 // as long as a client's get
		id, other := s.open(), s.open()
		ticket := protocol.Ticket(0)
		granted := []protocol.Seq{}
		for range batches {
			ops := []protocol.Op{}
			for range each {
				ticket++
				ops = append(ops, acquire(ticket, 1))
			}
			for _, f := range s.say(id, ops...).Results {
				granted = append(granted, f.Lease)
			}
		}
		s.wantResults(s.say(other, acquire(1, 1)))
		s.wantInUse(3000, batches*each-3000+1)
		for range 2 * batches {
			n := min(each, len(granted))
			ops := []protocol.Op{}
			for _, lease := range granted[:n] {
				ops = append(ops, release(lease))
			}
			granted = granted[n:]
			for _, f := range s.say(id, ops...).Results {
				granted = append(granted, f.Lease)
			}
		}
		s.wantInUse(1, 0)
		s.granted(other, 1)
	}},
}
