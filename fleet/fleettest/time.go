package fleettest

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// shortTTL is for checks in which somebody dies.
const shortTTL = 600 * time.Millisecond

func micros(d time.Duration) protocol.Micros { return protocol.Micros(d / time.Microsecond) }

// untilGranted speaks, as often as the engine asks for and by heartbeats
// otherwise, until there is a fate, and says how long that took.
func (s *speaker) untilGranted(id protocol.Session, limit time.Duration) time.Duration {
	start := time.Now()
	for {
		r := s.say(id)
		s.wantVerdict(r, protocol.Heard)
		if len(r.Fates) > 0 {
			s.wantFates(r, protocol.Granted)
			return time.Since(start)
		}
		if time.Since(start) > limit {
			s.fail("nothing was granted for %v", limit)
		}
		pause := shortTTL / 3
		switch {
		case r.More:
			pause = 0
		case r.Next > 0:
			pause = min(pause, time.Duration(r.Next)*time.Microsecond)
		}
		time.Sleep(pause)
	}
}

// timeChecks are about what time does. They take some.
var timeChecks = []Check{
	check("what the dead had is free after a TTL, and not before", protocol.Config{Capacity: 1, TTL: micros(shortTTL)}, func(s *speaker) {
		dead, id := s.open(), s.open()
		s.granted(dead, 1, acquire(1, 1))
		s.wantFates(s.say(id, acquire(1, 1)))
		took := s.untilGranted(id, 5*shortTTL)
		if took < shortTTL*9/10 || took > 2*shortTTL {
			s.fail("granted after %v, with a TTL of %v", took, shortTTL)
		}
		s.wantVerdict(s.say(dead), protocol.Unknown)
	}),
	check("who speaks lives", protocol.Config{Capacity: 1, TTL: micros(shortTTL)}, func(s *speaker) {
		holder, id := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantFates(s.say(id, acquire(1, 1)))
		for start := time.Now(); time.Since(start) < 3*shortTTL; time.Sleep(shortTTL / 6) {
			s.wantVerdict(s.say(holder), protocol.Heard)
			s.wantFates(s.say(id))
		}
	}),
	check("many dead waiters at the head are not in the way for long", protocol.Config{Capacity: 1, TTL: micros(shortTTL)}, func(s *speaker) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		for range 100 {
			s.say(s.open(), acquire(1, 1))
			s.say(holder)
		}
		id := s.open()
		s.wantFates(s.say(id, acquire(1, 1)))
		s.say(holder, release(lease))
		s.untilGranted(id, 6*shortTTL)
	}),
	check("a ticket's own deadline is kept", protocol.Config{Capacity: 1, TTL: micros(shortTTL)}, func(s *speaker) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantFates(s.say(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: micros(shortTTL / 10)}))
		time.Sleep(shortTTL / 6)
		s.say(holder, release(lease))
		s.wantFates(s.say(id), protocol.TimedOut)
	}),
	check("a rate comes back by time alone", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: micros(shortTTL), TTL: micros(shortTTL)}, func(s *speaker) {
		id := s.open()
		s.granted(id, 2, acquire(1, 1), acquire(2, 1))
		s.wantFates(s.say(id, acquire(3, 2)))
		if took := s.untilGranted(id, 3*shortTTL); took < shortTTL*8/10 {
			s.fail("granted again after %v, with a window of %v", took, shortTTL)
		}
	}),
	check("a capacity rises by its ramp", protocol.Config{Capacity: 0, Ramp: 10, TTL: micros(shortTTL)}, func(s *speaker) {
		id := s.open()
		s.wantFates(s.say(id, acquire(1, 3)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 5 }))
		took := s.untilGranted(id, 2*time.Second)
		if took < 270*time.Millisecond || took > time.Second {
			s.fail("three permits were there after %v, at ten a second", took)
		}
	}),
}
