package fleettest

import (
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Clocked is a store whose engine has a clock that a test can stop and step.
// The engine is its own: others would not like it.
type Clocked interface {
	fleet.Store

	// SetClock has the engine's clock stand still at a time, or run as usual if
	// that is zero.
	SetClock(at time.Time)
}

// A Clock is for engines that are given their clock as a function. A store in
// which it is embedded is [Clocked]:
//
//	type clocked struct {
//		*mystore.Store
//		*fleettest.Clock
//	}
type Clock struct {
	at atomic.Int64 // in microseconds since 1970; 0: it runs
}

// Now is the time.
func (c *Clock) Now() time.Time {
	if at := c.at.Load(); at != 0 {
		return time.UnixMicro(at)
	}
	return time.Now()
}

// SetClock is for [Clocked].
func (c *Clock) SetClock(at time.Time) {
	if at.IsZero() {
		c.at.Store(0)
		return
	}
	c.at.Store(at.UnixMicro())
}

// A stopped clock is the engine's while a script moves it.
type stopped struct {
	of Clocked
	at time.Time
}

// stopClock stops the engine's clock, if that is possible.
func (s *speaker) stopClock() bool {
	clocked, ok := s.store.(Clocked)
	if ok {
		s.clock = &stopped{clocked, time.Now()}
		clocked.SetClock(s.clock.at)
	}
	return ok
}

// needClock stops the engine's clock, or ends the script.
func (s *speaker) needClock() {
	if !s.stopClock() {
		s.fail("%w: the engine's clock cannot be set; see Clocked", errNotOffered)
	}
}

func (s *speaker) runClock() {
	if s.clock != nil {
		s.clock.of.SetClock(time.Time{})
	}
}

// clockScripts are about an engine whose clock steps. Scripts in which it does
// not are in time.go.
var clockScripts = []script{
	{"a step of the clock robs nobody who renews", protocol.Config{Capacity: 40, TTL: short}, func(s *speaker) {
		s.needClock()
		for _, steps := range [][]time.Duration{
			{time.Hour}, {-time.Hour}, {time.Hour, time.Hour}, {time.Hour, -time.Hour}, {-time.Hour, time.Hour},
			{time.Hour, -time.Hour, time.Hour}, {s.ttl() * 9 / 10}, {s.ttl() * 2 / 5, s.ttl() / 2}, {10000 * time.Hour, -10000 * time.Hour},
		} {
			a := s.another()
			a.stepped(steps)
		}
	}},
	{"the dead are noticed whatever the clock does", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.needClock()
		for _, step := range []time.Duration{time.Hour, -time.Hour, s.ttl(), -s.ttl()} {
			a := s.another()
			dead, id := a.open(), a.open()
			a.granted(dead, 1, acquire(1, 1))
			a.wantResults(a.say(id, acquire(1, 1)))
			a.pass(step)
			start := a.time()
			a.awaitGrant(id, a.ttl()*7/6)
			if took := a.time().Sub(start); took > a.ttl()*3/2 {
				a.fail("after a step of %v it took %v to notice, with a TTL of %v", step, took, a.ttl())
			}
			a.remove()
		}
	}},
	{"a ticket's deadline is not reached by a step", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.needClock()
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: micros(s.ttl())}))
		s.pass(time.Hour)
		s.wantResults(s.say(id))
		s.pass(-time.Hour)
		s.hear(holder)
		s.say(holder, release(lease))
		s.granted(id, 1)
	}},
	{"a step forward costs a rate a burst, a step back no more than a window", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: short, TTL: short}, func(s *speaker) {
		s.needClock()
		id := s.open()
		s.granted(id, 2, acquire(1, 1), acquire(2, 1))
		s.wantResults(s.say(id, acquire(3, 2)))
		s.pass(time.Hour)
		s.wantResults(s.say(id), protocol.Granted)
		s.wantResults(s.say(id, acquire(4, 2)))
		s.pass(-2 * time.Hour)
		start := s.time()
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took > s.ttl()*7/6 {
			s.fail("granted %v after the step back, with a window of %v", took, s.ttl())
		}
	}},
	{"a step forward ends a ramp, a step back does not lengthen it", protocol.Config{Capacity: 0, Ramp: 2, TTL: micros(time.Minute)}, func(s *speaker) {
		s.needClock()
		id := s.open()
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 10 }))
		s.wantResults(s.say(id, acquire(1, 3)))
		s.pass(time.Second)
		s.wantResults(s.say(id)) // two of ten
		s.pass(-time.Hour)
		s.wantResults(s.say(id))
		s.pass(600 * time.Millisecond)
		s.wantResults(s.say(id), protocol.Granted)
		s.wantResults(s.say(id, acquire(2, 7)))
		s.pass(time.Hour)
		s.wantResults(s.say(id), protocol.Granted)
	}},
	{"a semaphore that is made again after a step back has no fences of before", protocol.Config{Capacity: 1}, func(s *speaker) {
		s.needClock()
		id := s.open()
		old := s.fence(id, acquire(1, 1))
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}))
		s.pass(-time.Hour)
		again := s.open()
		if again <= id {
			s.fail("session %d after %d of an earlier life", again, id)
		}
		if fresh := s.fence(again, acquire(1, 1)); fresh.Seq <= old.Seq || fresh.Floor <= old.Seq {
			s.fail("%+v after %+v of an earlier life", fresh, old)
		}
	}},
}

// stepped has the clock step within the two thirds of a TTL that holders trust
// in, while others speak. There are more holders than an engine would clear away
// at a time if they were dead.
func (s *speaker) stepped(steps []time.Duration) {
	defer s.remove()
	waiter, other := s.open(), s.open()
	leases := map[protocol.Session]protocol.Seq{}
	for range s.config.Capacity {
		id := s.open()
		leases[id] = s.granted(id, 1, acquire(1, 1))[0]
	}
	s.wantResults(s.say(waiter, acquire(1, s.config.Capacity)))
	for range 3 {
		for i := range 20 {
			s.pass(s.ttl() * 2 / 3 / 20)
			if i%6 == 3 && i/6 < len(steps) {
				s.pass(steps[i/6])
			}
			s.wantResults(s.say(waiter))
			s.hear(other)
		}
		for id := range leases {
			s.hear(id)
		}
	}
	for id, lease := range leases {
		s.say(id, release(lease))
	}
	s.granted(waiter, 1)
}
