package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// openBy opens a session for a client with a version of the protocol.
func (s *client) openBy(version uint32) (protocol.Session, error) {
	c := s.config
	c.Protocol = version
	id, _, err := s.store.Open(s.ctx, s.name, c, opener("fleettest"))
	return id, err
}

// useBy acquires and releases as a client with a version of the protocol.
func (s *client) useBy(version uint32) {
	id, err := s.openBy(version)
	s.must(err)
	s.send(id, release(s.granted(id, 1, acquire(1, 1))[0]))
	s.wantInUse(0, 0)
}

func (s *client) rejectsVersion(version uint32) {
	before := len(s.inspect().Sessions)
	_, err := s.openBy(version)
	s.mustBe(err, protocol.ErrVersion)
	if after := len(s.inspect().Sessions); after != before {
		s.fail("a rejected client has opened a session")
	}
}

// versionScripts check clients of several protocol versions.
var versionScripts = []script{
	{"adjacent versions share a semaphore, others are rejected", protocol.Config{Capacity: 1}, func(s *client) {
		const created = protocol.Version + 2 // so that there are two versions before it
		s.config.Protocol = created
		s.useBy(created)
		if got := s.inspect().Config.Protocol; got != created {
			s.fail("created with version %d, stored is %d", created, got)
		}
		s.useBy(created - 1)
		s.useBy(created + 1)
		s.rejectsVersion(created + 2)
		s.rejectsVersion(created - 2)
		s.useBy(created)
		if got := s.inspect().Config.Protocol; got != created {
			s.fail("created with version %d, after use by others stored is %d", created, got)
		}
	}},
	{"the version of a semaphore rises by one at a time", protocol.Config{Capacity: 1}, func(s *client) {
		set := func(version uint32) error {
			return s.configure(func(c *protocol.Config) { c.Protocol = version })
		}
		const created = protocol.Version + 1 // so that there is a version before it
		s.config.Protocol = created
		s.useBy(created)
		for _, wrong := range []uint32{created - 1, created + 2} {
			if set(wrong) == nil {
				s.fail("version %d became %d", created, wrong)
			}
		}
		s.must(set(created + 1))
		s.useBy(created)
		if set(created) == nil {
			s.fail("version %d became %d", created+1, created)
		}
		s.must(set(created + 2))
		s.rejectsVersion(created)
		s.useBy(created + 3)
	}},
	{"an unknown op is rejected, and the rest of the batch is applied", protocol.Config{Capacity: 3}, func(s *client) {
		id := s.open()
		results := s.wantResults(s.send(id, acquire(1, 1), protocol.Op{Verb: unknownVerb, Ticket: 2, Weight: 1, Details: &protocol.Details{Holder: "?"}}, acquire(3, 1)),
			protocol.Invalid, protocol.Granted, protocol.Granted)
		for i, want := range []protocol.Ticket{2, 1, 3} {
			if results[i].Ticket != want {
				s.fail("results %+v", results)
			}
		}
		s.wantInUse(2, 0)
	}},
}
