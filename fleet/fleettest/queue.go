package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// queueScripts check the order of grants, and rejections.
var queueScripts = []script{
	{"grants are in order of arrival across sessions", protocol.Config{Capacity: 1}, func(s *client) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		var queue []protocol.Session
		for range 10 {
			id := s.open()
			s.wantResults(s.send(id, acquire(1, 1)))
			queue = append(queue, id)
		}
		for i, id := range queue {
			s.send(holder, release(lease))
			for _, other := range queue[i+1:] {
				s.wantResults(s.send(other))
			}
			holder, lease = id, s.granted(id, 1)[0]
		}
	}},
	{"a heavy waiter is not overtaken by a stream of light ones", protocol.Config{Capacity: 4}, func(s *client) {
		light, heavy := s.open(), s.open()
		leases := s.granted(light, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.wantResults(s.send(heavy, acquire(1, 3)))
		s.wantResults(s.send(light, acquire(4, 1)))
		s.wantResults(s.send(light, try(5, 1)), protocol.Full)
		s.wantResults(s.send(light, release(leases[0])))
		s.wantResults(s.send(heavy))
		s.send(light, release(leases[1]))
		s.wantResults(s.send(heavy), protocol.Granted)
	}},
	{"one release grants as many tickets as fit", protocol.Config{Capacity: 5}, func(s *client) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 5))[0]
		s.wantResults(s.send(waiter, acquire(1, 2), acquire(2, 2), acquire(3, 2)))
		s.send(holder, release(lease))
		s.wantResults(s.send(waiter), protocol.Granted, protocol.Granted)
		s.wantInUse(4, 1)
	}},
	{"a cancelled ticket makes room for those behind it", protocol.Config{Capacity: 2}, func(s *client) {
		holder, heavy, light := s.open(), s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.send(heavy, acquire(1, 2)))
		s.wantResults(s.send(light, acquire(1, 1)))
		s.send(heavy, cancel(1))
		s.wantResults(s.send(light), protocol.Granted)
	}},
	{"each rejection has its reason", protocol.Config{Capacity: 2, MaxWaiters: 1}, func(s *client) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 2))
		s.wantResults(s.send(waiter, acquire(1, 1), acquire(2, 1), acquire(3, 3), acquire(4, 0), try(5, 1)),
			protocol.QueueFull, protocol.TooLarge, protocol.Invalid, protocol.Full)
	}},
	{"with no waiters allowed an acquire is granted or rejected", protocol.Config{Capacity: 2, MaxWaiters: protocol.NoWaiters}, func(s *client) {
		id := s.open()
		s.wantResults(s.send(id, acquire(1, 2), acquire(2, 1)), protocol.Granted, protocol.QueueFull)
		s.wantInUse(2, 0)
	}},
	{"a lease is released in parts", protocol.Config{Capacity: 5}, func(s *client) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 5))[0]
		s.send(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 2})
		s.wantInUse(3, 0)
		s.send(id, release(lease))
		s.wantInUse(0, 0)
	}},
	{"at capacity 0 nothing is too large, and nothing is granted", protocol.Config{Capacity: 0}, func(s *client) {
		id := s.open()
		s.wantResults(s.send(id, acquire(1, 100)))
		s.wantResults(s.send(id, try(2, 1)), protocol.Full)
		s.wantInUse(0, 1)
	}},
	{"large weights are exact", protocol.Config{Capacity: protocol.MaxCapacity}, func(s *client) {
		id := s.open()
		const most = protocol.MaxCapacity - 1
		results := s.wantResults(s.send(id, acquire(1, most), acquire(2, 1), acquire(3, 2)), protocol.Granted, protocol.Granted)
		if results[0].Weight != most {
			s.fail("granted %d, want %d", results[0].Weight, int64(most))
		}
		s.wantInUse(protocol.MaxCapacity, 1)
		s.send(id, protocol.Op{Verb: protocol.Release, Lease: results[0].Lease, Weight: most - 5})
		s.wantInUse(8, 0)
	}},
	{"batches and the queue may be long", protocol.Config{Capacity: 3000}, func(s *client) {
		const each, batches = 512, 12 // as long as the batches of a fleet client
		id, other := s.open(), s.open()
		ticket := protocol.Ticket(0)
		granted := []protocol.Seq{}
		for range batches {
			ops := []protocol.Op{}
			for range each {
				ticket++
				ops = append(ops, acquire(ticket, 1))
			}
			for _, f := range s.send(id, ops...).Results {
				granted = append(granted, f.Lease)
			}
		}
		s.wantResults(s.send(other, acquire(1, 1)))
		s.wantInUse(3000, batches*each-3000+1)
		for range 2 * batches {
			n := min(each, len(granted))
			ops := []protocol.Op{}
			for _, lease := range granted[:n] {
				ops = append(ops, release(lease))
			}
			granted = granted[n:]
			for _, f := range s.send(id, ops...).Results {
				granted = append(granted, f.Lease)
			}
		}
		s.wantInUse(1, 0)
		s.granted(other, 1)
	}},
}
