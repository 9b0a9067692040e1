package fleettest

import (
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// pitfallScripts are about what has broken other distributed semaphores.
var pitfallScripts = []script{
	{"a process that was stopped past its TTL comes back to nothing", protocol.Config{Capacity: 2, TTL: short}, func(s *speaker) {
		s.stopClock()
		var guard fleet.Guard
		stopped, other, id := s.open(), s.open(), s.open()
		old, others := s.fence(stopped, acquire(1, 1)), s.fence(other, acquire(1, 1))
		s.wantAdmitted(&guard, old, others)
		s.wantResults(s.say(id, acquire(1, 1)))
		var fresh protocol.Fence
		for range 9 {
			s.pass(s.ttl() / 6)
			s.hear(other)
			for _, f := range s.say(id).Results {
				fresh = f.Fence
			}
		}
		if fresh.Seq <= old.Seq {
			s.fail("the waiter was not served")
		}
		s.wantAdmitted(&guard, fresh, others)

		s.wantStatus(s.say(stopped, release(old.Seq), acquire(2, 1)), protocol.Unknown)
		s.wantStatus(s.repeat(stopped, release(old.Seq)), protocol.Unknown)
		s.wantInUse(2, 0)
		s.wantRefused(&guard, old)
		s.wantAdmitted(&guard, fresh, others)
	}},
	{"a release after expiry frees nobody else's permits", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		late, id := s.open(), s.open()
		lease := s.granted(late, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, acquire(1, 1)))
		s.awaitGrant(id, s.ttl()*7/6)
		s.wantStatus(s.say(late, release(lease)), protocol.Unknown)
		again := s.open()
		r := s.say(again, release(lease), try(1, 1))
		for range 20 {
			if len(r.Results) > 0 {
				break
			}
			s.hear(id) // who may be overdue, so that it is not certain yet
			r = s.say(again)
		}
		s.wantResults(r, protocol.Full)
		s.wantInUse(1, 0)
	}},
	{"a cancel that races with the grant leaves nothing behind", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder, id, next := s.open(), s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, acquire(1, 1)))
		s.wantResults(s.say(next, acquire(1, 1)))
		s.say(holder, release(lease)) // id has it, and does not know
		s.wantResults(s.say(id, cancel(1)))
		s.granted(next, 1)
		s.wantInUse(1, 0)
	}},
	{"a cancel is not overtaken by its own acquire", protocol.Config{Capacity: 1}, func(s *speaker) {
		id := s.open()
		first := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
		s.wantResults(s.apply(first), protocol.Granted)
		s.wantResults(s.apply(protocol.Batch{Session: id, Seq: 2, Ops: []protocol.Op{cancel(1)}}))
		s.wantStatus(s.apply(first), protocol.Stale)
		s.wantInUse(0, 0)
		s.seqs[id] = 2
		s.wantResults(s.say(id, acquire(2, 1), cancel(2)))
		s.wantInUse(0, 0)
	}},
	{"a reply that was lost after the commit is told again", protocol.Config{Capacity: 2}, func(s *speaker) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 2))[0]
		b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1), acquire(2, 1)}}
		s.wantResults(s.apply(b))
		s.wantResults(s.apply(b)) // the reply was lost
		s.wantInUse(2, 2)
		s.say(holder, release(lease))
		s.wantResults(s.apply(b), protocol.Granted, protocol.Granted) // and again
		s.wantInUse(2, 0)
		s.seqs[id] = 1
		s.say(id, release(s.inspect().Leases[0].Seq))
		s.wantStatus(s.apply(b), protocol.Stale)
		s.wantInUse(1, 0)
	}},
	{"a thousand dead waiters at the head are not in the way for long", protocol.Config{Capacity: 1, TTL: micros(2 * time.Second)}, func(s *speaker) {
		s.stopClock()
		const dead = 1000
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.crowd(dead, holder)
		id := s.open()
		s.wantResults(s.say(id, acquire(1, 1)))
		s.hear(holder)
		s.bury(holder, id)
		s.say(holder, release(lease))
		for calls := 0; ; calls++ {
			r := s.say(id)
			if len(r.Results) > 0 {
				s.wantResults(r, protocol.Granted)
				break
			}
			if !r.More {
				s.fail("only the dead are ahead, and it is not told to call again at once")
			}
			if calls > dead {
				s.fail("not granted in %d calls", calls)
			}
		}
		s.wantInUse(1, 0)
	}},
	{"a heavy waiter under a stream of light ones gets its turn", protocol.Config{Capacity: 4}, func(s *speaker) {
		light, heavy := s.open(), s.open()
		held := s.granted(light, 4, acquire(1, 1), acquire(2, 1), acquire(3, 1), acquire(4, 1))
		s.wantResults(s.say(heavy, acquire(1, 4)))
		for n := protocol.Ticket(5); len(held) > 0; n++ {
			s.wantResults(s.say(light, release(held[0]), acquire(n, 1), try(100+n, 1)), protocol.Full)
			held = held[1:]
		}
		s.granted(heavy, 1)
		s.wantInUse(4, 4)
	}},
	{"a heavy waiter is served by releases of parts", protocol.Config{Capacity: 6}, func(s *speaker) {
		holder, id := s.open(), s.open()
		leases := s.granted(holder, 2, acquire(1, 3), acquire(2, 3))
		s.wantResults(s.say(id, acquire(1, 4)))
		s.say(holder, protocol.Op{Verb: protocol.Release, Lease: leases[0], Weight: 2})
		s.wantResults(s.say(id))
		s.say(holder, protocol.Op{Verb: protocol.Release, Lease: leases[1], Weight: 2})
		s.wantInUse(6, 0)
		s.granted(id, 1)
	}},
	{"resized to 0 it is paused, and goes on when it is raised", protocol.Config{Capacity: 2}, func(s *speaker) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 2))[0]
		s.wantResults(s.say(id, acquire(1, 2)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 0 }))
		s.wantResults(s.say(id, acquire(2, 5), try(3, 1)), protocol.Full)
		s.wantResults(s.say(holder, release(lease)))
		s.wantInUse(0, 2)
		s.hear(holder, id)
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantResults(s.say(id), protocol.TooLarge, protocol.TooLarge)
		s.granted(id, 1, acquire(4, 1))
	}},
	{"order is that of commits, over many sessions of one instance", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		ids := []protocol.Session{s.open(), s.open(), s.open()}
		want := []protocol.Session{}
		for n := range 9 { // the youngest session first
			id := ids[len(ids)-1-n%len(ids)]
			s.wantResults(s.say(id, acquire(protocol.Ticket(n+1), 1)))
			want = append(want, id)
		}
		for n, id := range want {
			s.say(holder, release(lease))
			got := s.inspect().Leases[0]
			if got.Session != id {
				s.fail("turn %d is that of session %d, want %d", n, got.Session, id)
			}
			holder, lease = id, got.Seq
		}
	}},
	{"an outage of the caller does not make it lose its place", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		holder, id, next := s.open(), s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, acquire(1, 1)))
		s.wantResults(s.say(next, acquire(1, 1)))
		for range 4 { // heartbeats that come, if only just
			s.pass(s.ttl() * 2 / 3)
			s.hear(holder, next, id)
		}
		s.say(holder, release(lease))
		s.wantResults(s.say(next))
		s.granted(id, 1)
	}},
}

// crowd has so many sessions wait, each for itself, while another is kept alive.
func (s *speaker) crowd(n int, alive protocol.Session) {
	const callers = 20
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for range callers {
		wg.Go(func() {
			for range n / callers {
				id, _, err := s.store.Open(s.ctx, s.name, s.config, opener("fleettest"))
				if err == nil {
					_, err = s.store.Apply(s.ctx, s.name, protocol.Batch{Session: id, Owner: owner, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}})
				}
				errs <- err
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	for beat := time.NewTicker(s.ttl() / 20); ; {
		select {
		case <-beat.C:
			s.hear(alive)
			continue
		case <-done:
		}
		beat.Stop()
		break
	}
	close(errs)
	for err := range errs {
		s.must(err)
	}
}
