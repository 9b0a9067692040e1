package fleettest

import (
	"io/fs"
	"slices"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// adminScripts check the operations of operators.
var adminScripts = []script{
	{"the stored configuration wins over that of a later opener", protocol.Config{Capacity: 2}, func(s *client) {
		s.open()
		other := s.config
		other.Capacity = 7
		_, config, err := s.store.Open(s.ctx, s.name, other, opener("fleettest"))
		s.must(err)
		if config.Capacity != 2 {
			s.fail("capacity %d, want 2", config.Capacity)
		}
		if config = s.inspect().Config; config.Capacity != 2 || config.Version != 1 {
			s.fail("%+v changed without a change request", config)
		}
	}},
	{"an opener that requires the semaphore creates nothing", protocol.Config{Capacity: 2}, func(s *client) {
		by := opener("fleettest")
		by.MustExist = true
		for _, config := range []protocol.Config{{Protocol: protocol.Version}, s.config} {
			_, _, err := s.store.Open(s.ctx, s.name, config, by)
			s.mustBe(err, fs.ErrNotExist)
			_, err = s.store.Inspect(s.ctx, s.name)
			s.mustBe(err, fs.ErrNotExist)
		}
		s.open()
		_, config, err := s.store.Open(s.ctx, s.name, protocol.Config{Protocol: protocol.Version}, by)
		s.must(err)
		if config.Capacity != 2 || config.TTL != s.config.TTL {
			s.fail("%+v changed by opening a session", config)
		}
	}},
	{"a delete that names another version than the stored one changes nothing", protocol.Config{Capacity: 2}, func(s *client) {
		holder := s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 3 }))
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true, DeleteVersion: 1}), protocol.ErrConflict)
		s.wantInUse(1, 0)
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true, DeleteVersion: 2}))
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true, DeleteVersion: 2}), fs.ErrNotExist)
	}},
	{"a shrink revokes nothing, and its debt is paid first", protocol.Config{Capacity: 3}, func(s *client) {
		holder, waiter := s.open(), s.open()
		leases := s.granted(holder, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.wantResults(s.send(waiter, acquire(1, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantInUse(3, 1)
		s.send(holder, release(leases[0]), release(leases[1]))
		s.wantResults(s.send(waiter))
		s.send(holder, release(leases[2]))
		s.wantResults(s.send(waiter), protocol.Granted)
	}},
	{"a higher capacity grants waiters, a lower one rejects waiters that are too large", protocol.Config{Capacity: 2}, func(s *client) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 2))
		s.wantResults(s.send(waiter, acquire(1, 1), acquire(2, 2)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 3 }))
		s.wantResults(s.send(waiter), protocol.Granted)
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantResults(s.send(waiter), protocol.TooLarge)
	}},
	{"a change based on an old version is rejected", protocol.Config{Capacity: 2}, func(s *client) {
		s.open()
		old := s.inspect().Config
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 3 }))
		old.Capacity = 9
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Configure: &old}), protocol.ErrConflict)
		if got := s.inspect().Config; got.Capacity != 3 || got.Version != old.Version+1 {
			s.fail("%+v", got)
		}
	}},
	{"draining rejects acquires and renews sessions", protocol.Config{Capacity: 1}, func(s *client) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(waiter, acquire(1, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Draining = true }))
		s.wantResults(s.send(waiter, acquire(2, 1)), protocol.Draining, protocol.Draining)
		s.wantStatus(s.send(holder), protocol.Applied)
		s.send(holder, release(lease))
		s.wantInUse(0, 0)
		s.must(s.configure(func(c *protocol.Config) { c.Draining = false }))
		s.granted(waiter, 1, acquire(3, 1))
	}},
	{"a revoked lease is free when its holder has acknowledged it", protocol.Config{Capacity: 1}, func(s *client) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(waiter, acquire(1, 1)))
		s.must(s.revoke(lease, false))
		s.wantResults(s.send(waiter))
		revoked := s.wantResults(s.send(holder), protocol.Revoked)[0]
		if want := revocation(lease, false).Note(); revoked.Lease != lease || revoked.Note != want {
			s.fail("result %+v, want note %q", revoked, want)
		}
		s.wantResults(s.send(waiter))
		s.send(holder)
		s.wantResults(s.send(waiter), protocol.Granted)
		s.mustBe(s.revoke(lease, false), fs.ErrNotExist)
	}},
	{"a lease that is revoked at once is free at once", protocol.Config{Capacity: 1}, func(s *client) {
		holder, waiter := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(waiter, acquire(1, 1)))
		s.must(s.revoke(lease, true))
		s.wantResults(s.send(waiter), protocol.Granted)
		s.wantResults(s.send(holder), protocol.Revoked)
	}},
	{"a deleted semaphore is gone, and its fences are not reused", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		lease := s.granted(id, 1, acquire(1, 1))[0]
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}))
		s.wantStatus(s.send(id), protocol.Unknown)
		_, err := s.store.Inspect(s.ctx, s.name)
		s.mustBe(err, fs.ErrNotExist)
		s.mustBe(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}), fs.ErrNotExist)
		if again := s.granted(s.open(), 1, acquire(1, 1))[0]; again <= lease {
			s.fail("lease %d after %d of the deleted semaphore", again, lease)
		}
	}},
	{"semaphores are listed by prefix, in order, in pages", protocol.Config{Capacity: 1}, func(s *client) {
		list := func(q protocol.ListQuery, want ...string) []protocol.Summary {
			page, err := s.store.List(s.ctx, q)
			s.must(err)
			var names []string
			for _, one := range page {
				names = append(names, one.Name)
			}
			if !slices.Equal(names, want) {
				s.fail("%+v lists %q, want %q", q, names, want)
			}
			return page
		}
		list(protocol.ListQuery{Prefix: s.name})
		b, a, c := *s, *s, *s
		b.name, a.name, c.name = s.name+"-b_%", s.name+"-a*", s.name+"-B"
		c.open()
		b.open()
		a.open()
		defer a.remove()
		defer c.remove()
		list(protocol.ListQuery{Prefix: s.name}, c.name, a.name, b.name)
		list(protocol.ListQuery{Prefix: s.name, Limit: 2}, c.name, a.name)
		list(protocol.ListQuery{Prefix: s.name, After: a.name, Limit: 2}, b.name)
		list(protocol.ListQuery{Prefix: s.name, After: s.name + "-C"}, a.name, b.name)
		list(protocol.ListQuery{Prefix: s.name + "-a", After: b.name})
		list(protocol.ListQuery{Prefix: b.name}, b.name)
		list(protocol.ListQuery{Prefix: s.name + "-_"})
		b.remove()
		list(protocol.ListQuery{Prefix: s.name}, c.name, a.name)
	}},
	{"a list has the load of each semaphore", protocol.Config{Capacity: 3, MaxWaiters: 5}, func(s *client) {
		holder, waiter := s.open(), s.open()
		s.granted(holder, 2, acquire(1, 2), acquire(2, 1))
		s.wantResults(s.send(waiter, acquire(1, 1), acquire(2, 1)))
		page, err := s.store.List(s.ctx, protocol.ListQuery{Prefix: s.name})
		s.must(err)
		want := protocol.Summary{Name: s.name, Config: s.inspect().Config, Effective: 3, InUse: 3, Leases: 2, Waiting: 2, Sessions: 2}
		if len(page) != 1 || page[0] != want {
			s.fail("%+v, want %+v", page, want)
		}
	}},
	{"an examination reports what was seen, and advice for problems", protocol.Config{Capacity: 1}, func(s *client) {
		e, ok := s.store.(fleet.Examiner)
		if !ok {
			return
		}
		_, err := e.Ping(s.ctx)
		s.must(err)
		findings, err := e.Examine(s.ctx)
		s.must(err)
		if len(findings) == 0 {
			s.fail("no findings")
		}
		for _, f := range findings {
			known := f.Level == fleet.LevelOK || f.Level == fleet.LevelWarning || f.Level == fleet.LevelProblem
			if !known || f.Check == "" || f.Seen == "" || (f.Advice == "") != (f.Level == fleet.LevelOK) {
				s.fail("%+v: want what was seen, and advice unless the level is OK", f)
			}
		}
	}},
}
