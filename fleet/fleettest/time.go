package fleettest

import (
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

func micros(d time.Duration) protocol.Micros { return protocol.Micros(d / time.Microsecond) }

// ttl returns the TTL of the semaphore.
func (s *client) ttl() time.Duration { return time.Duration(s.config.TTL) * time.Microsecond }

// pass advances the store's clock by d, or waits if the clock runs. A stopped clock may step back.
func (s *client) pass(d time.Duration) {
	if s.clock == nil {
		time.Sleep(d)
		return
	}
	s.clock.at = s.clock.at.Add(d)
	s.clock.of.SetClock(s.clock.at)
}

// time returns the time on the store's clock, or on a clock that runs as fast.
func (s *client) time() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.at
}

// await sends batches, as often as the replies ask for and otherwise as heartbeats, until there
// is a result. It fails if there is none although the semaphore's clock must have advanced by
// more than limit.
//
// That clock follows by at most a sixth of a TTL per call. The time from the end of a call to the
// next one has certainly passed, so the limit does not depend on the speed of this process.
func (s *client) await(id protocol.Session, limit time.Duration) []protocol.Result {
	for moved := time.Duration(0); ; {
		r := s.send(id)
		ended := s.time()
		s.wantStatus(r, protocol.Applied)
		switch {
		case len(r.Results) > 0:
			return r.Results
		case moved > limit:
			s.fail("no result after %v", moved)
		}
		s.pass(s.pause(r))
		moved += min(s.time().Sub(ended), s.ttl()/6)
	}
}

// pause returns the time after which the store expects the next batch.
func (s *client) pause(r protocol.Reply) time.Duration {
	switch {
	case r.More:
		return 0
	case r.Next > 0:
		return min(s.ttl()/3, time.Duration(r.Next)*time.Microsecond)
	}
	return s.ttl() / 3
}

func (s *client) awaitGrant(id protocol.Session, limit time.Duration) protocol.Result {
	return s.wantResults(protocol.Reply{Results: s.await(id, limit)}, protocol.Granted)[0]
}

// expireOthers lets more than a TTL pass, in which only the given sessions send batches.
func (s *client) expireOthers(live ...protocol.Session) {
	for range 8 {
		s.pass(s.ttl() / 6)
		s.heartbeat(live...)
	}
}

// timeScripts check what time alone changes. They take time unless the clock can be set.
var timeScripts = []script{
	{"leases of an expired session are free after a TTL, and not before", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		expired, id := s.open(), s.open()
		start := s.time()
		s.granted(expired, 1, acquire(1, 1))
		s.wantResults(s.send(id, acquire(1, 1)))
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took < s.ttl()*99/100 {
			s.fail("granted after %v, with a TTL of %v", took, s.ttl())
		} else if s.clock != nil && took > s.ttl()*5/4 {
			s.fail("granted after %v to a client that sends when replies ask for it, with a TTL of %v", took, s.ttl())
		}
		s.wantStatus(s.send(expired), protocol.Unknown)
	}},
	{"a session that sends heartbeats keeps its lease or its place", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		holder, id := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.send(id, acquire(1, 1)))
		for start := s.time(); s.time().Sub(start) < 3*s.ttl(); s.pass(s.ttl() / 6) {
			s.heartbeat(holder)
			s.wantResults(s.send(id))
		}
		s.wantInUse(1, 1)
	}},
	{"a repeated batch renews nothing", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		holder, id := s.open(), s.open()
		s.granted(holder, 1, acquire(1, 1))
		s.wantResults(s.send(id, acquire(1, 1)))
		for range 9 {
			s.repeat(holder, acquire(1, 1))
			s.pass(s.ttl() / 6)
			s.send(id)
		}
		s.wantStatus(s.repeat(holder), protocol.Unknown)
		s.wantInUse(1, 0)
	}},
	{"inspections alone end expired sessions", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		s.granted(s.open(), 1, acquire(1, 1))
		for range 9 {
			s.pass(s.ttl() / 6)
			s.inspect()
		}
		s.wantInUse(0, 0)
	}},
	{"a ticket times out at its own deadline", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: micros(s.ttl() / 12)}))
		for range 3 { // much longer than that, but too short for a session to expire
			s.pass(s.ttl() / 6)
			s.heartbeat(holder)
		}
		s.send(holder, release(lease))
		s.wantResults(s.send(id), protocol.TimedOut)
		s.wantInUse(0, 0)
	}},
	{"a try long after a crash is decided within the time in the reply", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		s.granted(s.open(), 1, acquire(1, 1))
		s.pass(2 * s.ttl())
		id := s.open()
		r := s.send(id, try(1, 1))
		if kinds := kindsOf(r.Results); slices.Equal(kinds, []protocol.ResultKind{protocol.Granted}) {
			return // the store ends expired sessions by itself
		}
		s.wantResults(r, protocol.Full)
		if r.Undecided <= 0 || r.Undecided > s.config.TTL {
			s.fail("undecided for %d µs, want at most a TTL: the holder may have expired", r.Undecided)
		}
		for sent := 0; r.Undecided > 0; sent++ {
			if sent > 24 {
				s.fail("still undecided after %d batches, a sixth of a TTL or less apart", sent)
			}
			s.pass(time.Duration(min(r.Undecided, s.config.TTL/6)) * time.Microsecond)
			r = s.send(id)
		}
		s.wantResults(s.send(id, try(2, 1)), protocol.Granted)
	}},
	{"a rate returns permits by time alone", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: short, TTL: short}, func(s *client) {
		s.stopClock()
		id := s.open()
		start := s.time()
		lease := s.granted(id, 2, acquire(1, 1), acquire(2, 1))[0]
		s.wantResults(s.send(id, release(lease), acquire(3, 2)))
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took < s.ttl()*99/100 {
			s.fail("granted again after %v, with a window of %v", took, s.ttl())
		} else if s.clock != nil && took > s.ttl()*101/100 {
			s.fail("granted again after %v to a client that sends when replies ask for it, with a window of %v", took, s.ttl())
		}
	}},
	{"a capacity rises by its ramp", protocol.Config{Capacity: 0, Ramp: 20, TTL: micros(time.Minute)}, func(s *client) {
		s.stopClock()
		id := s.open()
		s.wantResults(s.send(id, acquire(1, 3)))
		start := s.time()
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 5 }))
		s.awaitGrant(id, time.Second)
		if took := s.time().Sub(start); took < 149*time.Millisecond {
			s.fail("three permits were granted after %v, at twenty per second", took)
		} else if s.clock != nil && took > 151*time.Millisecond {
			s.fail("three permits were granted after %v to a client that sends when replies ask for it, at twenty per second", took)
		}
	}},
}
