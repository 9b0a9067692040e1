package fleettest

import (
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Clocked is a store whose clock a test can stop and step. The store must not be shared
// with other checks.
type Clocked interface {
	fleet.Store

	// SetClock stops the store's clock at a time, or makes it run as usual if at is
	// zero.
	SetClock(at time.Time)
}

// A Clock is a clock for stores that take their clock as a function. A store that embeds it
// implements [Clocked]:
//
//	type clocked struct {
//		*mystore.Store
//		*fleettest.Clock
//	}
type Clock struct {
	at atomic.Int64 // in microseconds since 1970; 0: the clock runs
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	if at := c.at.Load(); at != 0 {
		return time.UnixMicro(at)
	}
	return time.Now()
}

// SetClock implements [Clocked].
func (c *Clock) SetClock(at time.Time) {
	if at.IsZero() {
		c.at.Store(0)
		return
	}
	c.at.Store(at.UnixMicro())
}

// A stoppedClock is the clock of a store while a script moves it.
type stoppedClock struct {
	of Clocked
	at time.Time
}

// stopClock stops the store's clock if it can be set, and reports whether it can.
func (s *client) stopClock() bool {
	clocked, ok := s.store.(Clocked)
	if ok {
		s.clock = &stoppedClock{clocked, time.Now()}
		clocked.SetClock(s.clock.at)
	}
	return ok
}

// needClock stops the store's clock, or ends the script if it cannot be set.
func (s *client) needClock() {
	if !s.stopClock() {
		s.fail("%w: the store's clock cannot be set; see Clocked", errNotOffered)
	}
}

func (s *client) runClock() {
	if s.clock != nil {
		s.clock.of.SetClock(time.Time{})
	}
}

// clockScripts check a store whose clock steps. Scripts without steps are in time.go.
var clockScripts = []script{
	{"a clock step does not end sessions that renew", protocol.Config{Capacity: 40, TTL: short}, func(s *client) {
		s.needClock()
		for _, steps := range [][]time.Duration{
			{time.Hour}, {-time.Hour}, {time.Hour, time.Hour}, {time.Hour, -time.Hour}, {-time.Hour, time.Hour},
			{time.Hour, -time.Hour, time.Hour}, {s.ttl() * 9 / 10}, {s.ttl() * 2 / 5, s.ttl() / 2}, {10000 * time.Hour, -10000 * time.Hour},
		} {
			a := s.another()
			a.checkSteps(steps)
		}
	}},
	{"sessions expire whatever the clock does", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.needClock()
		for _, step := range []time.Duration{time.Hour, -time.Hour, s.ttl(), -s.ttl()} {
			a := s.another()
			expired, id := a.open(), a.open()
			a.granted(expired, 1, acquire(1, 1))
			a.wantResults(a.send(id, acquire(1, 1)))
			a.pass(step)
			start := a.time()
			a.awaitGrant(id, a.ttl()*7/6)
			if took := a.time().Sub(start); took > a.ttl()*3/2 {
				a.fail("after a step of %v the expiry took %v, with a TTL of %v", step, took, a.ttl())
			}
			a.remove()
		}
	}},
	{"a clock step does not reach the deadline of a ticket", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.needClock()
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Wait: micros(s.ttl())}))
		s.pass(time.Hour)
		s.wantResults(s.send(id))
		s.pass(-time.Hour)
		s.heartbeat(holder)
		s.send(holder, release(lease))
		s.granted(id, 1)
	}},
	{"a step forward costs a rate a burst, a step back no more than a window", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: short, TTL: short}, func(s *client) {
		s.needClock()
		id := s.open()
		s.granted(id, 2, acquire(1, 1), acquire(2, 1))
		s.wantResults(s.send(id, acquire(3, 2)))
		s.pass(time.Hour)
		s.wantResults(s.send(id), protocol.Granted)
		s.wantResults(s.send(id, acquire(4, 2)))
		s.pass(-2 * time.Hour)
		start := s.time()
		s.awaitGrant(id, s.ttl()*7/6)
		if took := s.time().Sub(start); took > s.ttl()*7/6 {
			s.fail("granted %v after the step back, with a window of %v", took, s.ttl())
		}
	}},
	{"a step forward ends a ramp, a step back does not lengthen it", protocol.Config{Capacity: 0, Ramp: 2, TTL: micros(time.Minute)}, func(s *client) {
		s.needClock()
		id := s.open()
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 10 }))
		s.wantResults(s.send(id, acquire(1, 3)))
		s.pass(time.Second)
		s.wantResults(s.send(id)) // two of ten
		s.pass(-time.Hour)
		s.wantResults(s.send(id))
		s.pass(600 * time.Millisecond)
		s.wantResults(s.send(id), protocol.Granted)
		s.wantResults(s.send(id, acquire(2, 7)))
		s.pass(time.Hour)
		s.wantResults(s.send(id), protocol.Granted)
	}},
	{"a semaphore that is created again after a step back has higher fences", protocol.Config{Capacity: 1}, func(s *client) {
		s.needClock()
		id := s.open()
		old := s.fence(id, acquire(1, 1))
		s.must(s.store.Administer(s.ctx, s.name, fleet.Command{Delete: true}))
		s.pass(-time.Hour)
		again := s.open()
		if again <= id {
			s.fail("session %d after %d of the deleted semaphore", again, id)
		}
		if fresh := s.fence(again, acquire(1, 1)); fresh.Seq <= old.Seq || fresh.Floor <= old.Seq {
			s.fail("%+v after %+v of the deleted semaphore", fresh, old)
		}
	}},
}

// checkSteps steps the clock within the two thirds of a TTL for which holders rely on their
// leases, while other sessions send batches. There are more holders than a store would end in
// one call if they had expired.
func (s *client) checkSteps(steps []time.Duration) {
	defer s.remove()
	waiter, other := s.open(), s.open()
	leases := map[protocol.Session]protocol.Seq{}
	for range s.config.Capacity {
		id := s.open()
		leases[id] = s.granted(id, 1, acquire(1, 1))[0]
	}
	s.wantResults(s.send(waiter, acquire(1, s.config.Capacity)))
	for range 3 {
		for i := range 20 {
			s.pass(s.ttl() * 2 / 3 / 20)
			if i%6 == 3 && i/6 < len(steps) {
				s.pass(steps[i/6])
			}
			s.wantResults(s.send(waiter))
			s.heartbeat(other)
		}
		for id := range leases {
			s.heartbeat(id)
		}
	}
	for id, lease := range leases {
		s.send(id, release(lease))
	}
	s.granted(waiter, 1)
}
