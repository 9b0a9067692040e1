package fleettest

import (
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

func micros(d time.Duration) protocol.Micros { return protocol.Micros(d / time.Microsecond) }

// ttl is the semaphore's.
func (s *speaker) ttl() time.Duration { return time.Duration(s.config.TTL) * time.Microsecond }

// pass lets time pass on the engine's clock, or steps it.
func (s *speaker) pass(d time.Duration) {
	if s.clock == nil {
		time.Sleep(d)
		return
	}
	s.clock.at = s.clock.at.Add(d)
	s.clock.of.SetClock(s.clock.at)
}

// time is the engine's, or one that goes as fast.
func (s *speaker) time() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.at
}

// await speaks, as often as the engine asks for and by heartbeats otherwise,
// until there is a result. It fails if there is none though the semaphore's clock
// must have moved by more than limit.
//
// That clock follows by a sixth of a TTL from one call to the next, and the time
// from the end of a call to the next has surely passed: so what is asked for
// does not depend on how fast this process is.
func (s *speaker) await(id protocol.Session, limit time.Duration) []protocol.Result {
	for moved := time.Duration(0); ; {
		r := s.say(id)
		ended := s.time()
		s.wantStatus(r, protocol.Applied)
		switch {
		case len(r.Results) > 0:
			return r.Results
		case moved > limit:
			s.fail("there was no answer after %v", moved)
		}
		s.pass(s.pause(r))
		moved += min(s.time().Sub(ended), s.ttl()/6)
	}
}

// pause is until when the engine wants to hear from a client again.
func (s *speaker) pause(r protocol.Reply) time.Duration {
	switch {
	case r.More:
		return 0
	case r.Next > 0:
		return min(s.ttl()/3, time.Duration(r.Next)*time.Microsecond)
	}
	return s.ttl() / 3
}

func (s *speaker) awaitGrant(id protocol.Session, limit time.Duration) protocol.Result {
	return s.wantResults(protocol.Reply{Results: s.await(id, limit)}, protocol.Granted)[0]
}

// bury lets a TTL pass, and more, in which only these speak.
func (s *speaker) bury(living ...protocol.Session) {
	for range 8 {
		s.pass(s.ttl() / 6)
		s.hear(living...)
	}
}

// timeScripts are about what time does. They take some, unless the clock can be
// set.
var timeScripts = []script{
	{"what the dead had is free after a TTL, and not before", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		dead, id := s.open(), s.open()
		start := s.time()
		s.granted(dead, 1, acquire(1, 1))
		s.wantResults(s.say(id, acquire(1, 1)))
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took < s.ttl()*99/100 {
			s.fail("granted after %v, with a TTL of %v", took, s.ttl())
		} else if s.clock != nil && took > s.ttl()*5/4 {
			s.fail("granted after %v to one who spoke when it was told to, with a TTL of %v", took, s.ttl())
		}
		s.wantStatus(s.say(dead), protocol.Unknown)
	}},
	{"who speaks lives, and waits", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		holder, id := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.say(id, acquire(1, 1)))
		for start := s.time(); s.time().Sub(start) < 3*s.ttl(); s.pass(s.ttl() / 6) {
			s.hear(holder)
			s.wantResults(s.say(id))
		}
		s.wantInUse(1, 1)
	}},
	{"a repeated batch renews nothing", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		holder, id := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.say(id, acquire(1, 1)))
		for range 9 {
			s.repeat(holder, acquire(1, 1))
			s.pass(s.ttl() / 6)
			s.say(id)
		}
		s.wantStatus(s.repeat(holder), protocol.Unknown)
		s.wantInUse(1, 0)
	}},
	{"nobody but the engine need speak for the dead to leave", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		s.granted(s.open(), 1, acquire(1, 1))
		for range 9 {
			s.pass(s.ttl() / 6)
			s.inspect()
		}
		s.wantInUse(0, 0)
	}},
	{"a ticket's own deadline is kept", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: micros(s.ttl() / 12)}))
		for range 3 { // much longer than that, and not so long that a session may expire
			s.pass(s.ttl() / 6)
			s.hear(holder)
		}
		s.say(holder, release(lease))
		s.wantResults(s.say(id), protocol.TimedOut)
		s.wantInUse(0, 0)
	}},
	{"a try long after a crash can be decided when the reply says", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		s.granted(s.open(), 1, acquire(1, 1))
		s.pass(2 * s.ttl())
		id := s.open()
		r := s.say(id, try(1, 1))
		if kinds := kindsOf(r.Results); slices.Equal(kinds, []protocol.ResultKind{protocol.Granted}) {
			return // the store has noticed by itself
		}
		s.wantResults(r, protocol.Full)
		if r.Undecided <= 0 || r.Undecided > s.config.TTL {
			s.fail("undecided for %d µs, want at most a TTL: the holder may have expired", r.Undecided)
		}
		for asked := 0; r.Undecided > 0; asked++ {
			if asked > 24 {
				s.fail("still undecided after %d batches, a sixth of a TTL or less apart", asked)
			}
			s.pass(time.Duration(min(r.Undecided, s.config.TTL/6)) * time.Microsecond)
			r = s.say(id)
		}
		s.wantResults(s.say(id, try(2, 1)), protocol.Granted)
	}},
	{"a rate comes back by time alone", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: short, TTL: short}, func(s *speaker) {
		s.stopClock()
		id := s.open()
		start := s.time()
		lease := s.granted(id, 2, acquire(1, 1), acquire(2, 1))[0]
		s.wantResults(s.say(id, release(lease), acquire(3, 2)))
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took < s.ttl()*99/100 {
			s.fail("granted again after %v, with a window of %v", took, s.ttl())
		} else if s.clock != nil && took > s.ttl()*101/100 {
			s.fail("granted again after %v to one who spoke when it was told to, with a window of %v", took, s.ttl())
		}
	}},
	{"a capacity rises by its ramp", protocol.Config{Capacity: 0, Ramp: 20, TTL: micros(time.Minute)}, func(s *speaker) {
		s.stopClock()
		id := s.open()
		s.wantResults(s.say(id, acquire(1, 3)))
		start := s.time()
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 5 }))
		s.awaitGrant(id, time.Second)
		if took := s.time().Sub(start); took < 149*time.Millisecond {
			s.fail("three permits were there after %v, at twenty a second", took)
		} else if s.clock != nil && took > 151*time.Millisecond {
			s.fail("three permits were given after %v to one who spoke when it was told to, at twenty a second", took)
		}
	}},
}
