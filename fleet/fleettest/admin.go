package fleettest

import (
	"io/fs"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

func (s *speaker) configure(change func(*protocol.Config)) error {
	c := s.inspect().Config
	change(&c)
	return s.store.Administer(s.ctx, s.name, fleet.Command{Configure: &c})
}

// adminChecks are about what people do.
var adminChecks = []Check{
	check("what is stored counts, not what a later opener brings", protocol.Config{Capacity: 2}, func(s *speaker) {
		s.open()
		other := s.config
		other.Capacity = 7
		_, config, err := s.store.Open(s.ctx, s.name, other, "fleettest")
		s.must(err)
		if config.Capacity != 2 {
			s.fail("capacity %d, want 2", config.Capacity)
		}
	}),
	check("a shrink revokes nothing, and its debt is paid first", protocol.Config{Capacity: 3}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		leases := s.granted(holder, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.wantFates(s.say(waiter, acquire(1, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantInUse(3, 1)
		s.say(holder, release(leases[0]), release(leases[1]))
		s.wantFates(s.say(waiter))
		s.say(holder, release(leases[2]))
		s.wantFates(s.say(waiter), protocol.Granted)
	}),
	check("a rise serves who waits, a shrink tells who waits in vain", protocol.Config{Capacity: 2}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 2))
		s.wantFates(s.say(waiter, acquire(1, 1), acquire(2, 2)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 3 }))
		s.wantFates(s.say(waiter), protocol.Granted)
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantFates(s.say(waiter), protocol.TooLarge)
	}),
	check("a change that is based on an old version is refused", protocol.Config{Capacity: 2}, func(s *speaker) {
		s.open()
		old := s.inspect().Config
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 3 }))
		old.Capacity = 9
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Configure: &old}), protocol.ErrConflict)
		if got := s.inspect().Config; got.Capacity != 3 || got.Version != old.Version+1 {
			s.fail("%+v", got)
		}
	}),
	check("draining refuses, and renews", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantFates(s.say(waiter, acquire(1, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Draining = true }))
		s.wantFates(s.say(waiter, acquire(2, 1)), protocol.Draining, protocol.Draining)
		s.wantVerdict(s.say(holder), protocol.Heard)
		s.say(holder, release(lease))
		s.wantInUse(0, 0)
		s.must(s.configure(func(c *protocol.Config) { c.Draining = false }))
		s.granted(waiter, 1, acquire(3, 1))
	}),
	check("a revoked lease is free when its holder has heard of it", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantFates(s.say(waiter, acquire(1, 1)))
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Revoke: &fleet.Revocation{Lease: lease}}))
		s.wantFates(s.say(waiter))
		s.wantFates(s.say(holder), protocol.Revoked)
		s.wantFates(s.say(waiter))
		s.say(holder)
		s.wantFates(s.say(waiter), protocol.Granted)
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Revoke: &fleet.Revocation{Lease: lease}}), fs.ErrNotExist)
	}),
	check("a revoked lease is free at once if told so", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantFates(s.say(waiter, acquire(1, 1)))
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Revoke: &fleet.Revocation{Lease: lease, AtOnce: true}}))
		s.wantFates(s.say(waiter), protocol.Granted)
		s.wantFates(s.say(holder), protocol.Revoked)
	}),
	check("a deleted semaphore is gone, and its fences do not come back", protocol.Config{Capacity: 1}, func(s *speaker) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 1))[0]
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}))
		s.wantVerdict(s.say(id), protocol.Unknown)
		_, err := s.store.Inspect(s.ctx, s.name)
		s.mustBe(err, fs.ErrNotExist)
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}), fs.ErrNotExist)
		if again := s.granted(s.open(), 1, acquire(1, 1))[0]; again <= lease {
			s.fail("lease %d after %d of an earlier life", again, lease)
		}
	}),
}
