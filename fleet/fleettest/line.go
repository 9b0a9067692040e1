package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// lineChecks are about who is served, and when.
var lineChecks = []Check{
	check("served in order, across sessions", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		var line []protocol.Session
		for range 10 {
			id := s.open()
			s.wantFates(s.say(id, acquire(1, 1)))
			line = append(line, id)
		}
		for i, id := range line {
			s.say(holder, release(lease))
			for _, other := range line[i+1:] {
				s.wantFates(s.say(other))
			}
			holder, lease = id, s.granted(id, 1)[0]
		}
	}),
	check("a heavy waiter is not overtaken by a stream of light ones", protocol.Config{Capacity: 4}, func(s *speaker) {
		light, heavy := s.open(), s.open()
		leases := s.granted(light, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.wantFates(s.say(heavy, acquire(1, 3)))
		s.wantFates(s.say(light, acquire(4, 1)))
		s.wantFates(s.say(light, try(5, 1)), protocol.Full)
		s.wantFates(s.say(light, release(leases[0])))
		s.wantFates(s.say(heavy))
		s.say(light, release(leases[1]))
		s.wantFates(s.say(heavy), protocol.Granted)
	}),
	check("one release serves as many as fit", protocol.Config{Capacity: 5}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 5))[0]
		s.wantFates(s.say(waiter, acquire(1, 2), acquire(2, 2), acquire(3, 2)))
		s.say(holder, release(lease))
		s.wantFates(s.say(waiter), protocol.Granted, protocol.Granted)
		s.wantInUse(4, 1)
	}),
	check("who leaves makes room for those behind", protocol.Config{Capacity: 2}, func(s *speaker) {
		holder, heavy, light := s.open(), s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantFates(s.say(heavy, acquire(1, 2)))
		s.wantFates(s.say(light, acquire(1, 1)))
		s.say(heavy, cancel(1))
		s.wantFates(s.say(light), protocol.Granted)
	}),
	check("refusals say why", protocol.Config{Capacity: 2, MaxWaiters: 1}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 2))
		s.wantFates(s.say(waiter, acquire(1, 1), acquire(2, 1), acquire(3, 3), acquire(4, 0), try(5, 1)),
			protocol.QueueFull, protocol.TooLarge, protocol.Invalid, protocol.Full)
	}),
	check("a lease is given back in parts", protocol.Config{Capacity: 5}, func(s *speaker) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 5))[0]
		s.say(id, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 2})
		s.wantInUse(3, 0)
		s.say(id, release(lease))
		s.wantInUse(0, 0)
	}),
	check("at 0 nothing is too large, and nobody is served", protocol.Config{Capacity: 0}, func(s *speaker) {
		id := s.open()
		s.wantFates(s.say(id, acquire(1, 100)))
		s.wantFates(s.say(id, try(2, 1)), protocol.Full)
		s.wantInUse(0, 1)
	}),
	check("fences rise, and tell of those who left in between", protocol.Config{Capacity: 4}, func(s *speaker) {
		id := s.open()
		leases := s.granted(id, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.say(id, release(leases[1]))
		f := s.wantFates(s.say(id, acquire(4, 1)), protocol.Granted)[0].Fence
		if f.Seq <= leases[2] || f.Floor != leases[0] || !revokes(f, leases[1]) || revokes(f, leases[0]) || revokes(f, leases[2]) {
			s.fail("%+v after the leases %v, of which the second is gone", f, leases)
		}
	}),
}

func revokes(f protocol.Fence, seq protocol.Seq) bool {
	for _, r := range f.Revoked {
		if r.From <= seq && seq <= r.To {
			return true
		}
	}
	return false
}
