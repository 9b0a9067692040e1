package fleettest

import "github.com/sema-go/sema/fleet/protocol"

// openBy opens a session for those who speak a version of the protocol.
func (s *speaker) openBy(version uint32) (protocol.Session, error) {
	c := s.config
	c.Protocol = version
	id, _, err := s.store.Open(s.ctx, s.name, c, opener("fleettest"))
	return id, err
}

// useBy has those who speak a version of the protocol use the semaphore.
func (s *speaker) useBy(version uint32) {
	id, err := s.openBy(version)
	s.must(err)
	s.say(id, release(s.granted(id, 1, acquire(1, 1))[0]))
	s.wantInUse(0, 0)
}

func (s *speaker) refusedBy(version uint32) {
	before := len(s.inspect().Sessions)
	_, err := s.openBy(version)
	s.mustBe(err, protocol.ErrVersion)
	if after := len(s.inspect().Sessions); after != before {
		s.fail("one who was refused has opened a session")
	}
}

// versionScripts are about clients of several versions of the protocol.
var versionScripts = []script{
	{"neighbouring versions share a semaphore, others are refused", protocol.Config{Capacity: 1}, func(s *speaker) {
		const made = protocol.Version + 2 // so that there are two before it
		s.config.Protocol = made
		s.useBy(made)
		if got := s.inspect().Config.Protocol; got != made {
			s.fail("it was made by version %d, and says %d", made, got)
		}
		s.useBy(made - 1)
		s.useBy(made + 1)
		s.refusedBy(made + 2)
		s.refusedBy(made - 2)
		s.useBy(made)
		if got := s.inspect().Config.Protocol; got != made {
			s.fail("it was made by version %d, and after use by others says %d", made, got)
		}
	}},
	{"the version of a semaphore rises by one at a time", protocol.Config{Capacity: 1}, func(s *speaker) {
		set := func(version uint32) error {
			return s.configure(func(c *protocol.Config) { c.Protocol = version })
		}
		const made = protocol.Version + 1 // so that there is one before it
		s.config.Protocol = made
		s.useBy(made)
		for _, wrong := range []uint32{made - 1, made + 2} {
			if set(wrong) == nil {
				s.fail("version %d became %d", made, wrong)
			}
		}
		s.must(set(made + 1))
		s.useBy(made)
		if set(made) == nil {
			s.fail("version %d became %d", made+1, made)
		}
		s.must(set(made + 2))
		s.refusedBy(made)
		s.useBy(made + 3)
	}},
	{"what an op says that is not known is refused, and the rest is done", protocol.Config{Capacity: 3}, func(s *speaker) {
		id := s.open()
		results := s.wantResults(s.say(id, acquire(1, 1), protocol.Op{Verb: unknownVerb, Ticket: 2, Weight: 1, Details: protocol.Details{Holder: "?"}}, acquire(3, 1)),
			protocol.Invalid, protocol.Granted, protocol.Granted)
		for i, want := range []protocol.Ticket{2, 1, 3} {
			if results[i].Ticket != want {
				s.fail("results %+v", results)
			}
		}
		s.wantInUse(2, 0)
	}},
}
