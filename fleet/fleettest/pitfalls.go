package fleettest

import (
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// pitfallScripts check what has broken other distributed semaphores.
var pitfallScripts = []script{
	{"a process that was stopped past its TTL holds nothing", protocol.Config{Capacity: 2, TTL: short}, func(s *client) {
		s.stopClock()
		var guard fleet.Guard
		stopped, other, id := s.open(), s.open(), s.open()
		old, others := s.fence(stopped, acquire(1, 1)), s.fence(other, acquire(1, 1))
		s.wantAdmitted(&guard, old, others)
		s.wantResults(s.send(id, acquire(1, 1)))
		var fresh protocol.Fence
		for range 9 {
			s.pass(s.ttl() / 6)
			s.heartbeat(other)
			for _, f := range s.send(id).Results {
				fresh = f.Fence
			}
		}
		if fresh.Seq <= old.Seq {
			s.fail("the waiter was not granted")
		}
		s.wantAdmitted(&guard, fresh, others)

		s.wantStatus(s.send(stopped, release(old.Seq), acquire(2, 1)), protocol.Unknown)
		s.wantStatus(s.repeat(stopped, release(old.Seq)), protocol.Unknown)
		s.wantInUse(2, 0)
		s.wantRejected(&guard, old)
		s.wantAdmitted(&guard, fresh, others)
	}},
	{"a release after expiry does not free permits of others", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		late, id := s.open(), s.open()
		lease := s.granted(late, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, acquire(1, 1)))
		s.awaitGrant(id, s.ttl()*7/6)
		s.wantStatus(s.send(late, release(lease)), protocol.Unknown)
		again := s.open()
		r := s.send(again, release(lease), try(1, 1))
		for range 20 {
			if len(r.Results) > 0 {
				break
			}
			s.heartbeat(id) // id may be overdue, so that the try may be undecided
			r = s.send(again)
		}
		s.wantResults(r, protocol.Full)
		s.wantInUse(1, 0)
	}},
	{"a cancel that races with the grant leaves nothing behind", protocol.Config{Capacity: 1}, func(s *client) {
		holder, id, next := s.open(), s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, acquire(1, 1)))
		s.wantResults(s.send(next, acquire(1, 1)))
		s.send(holder, release(lease)) // id has the lease, but not the result
		s.wantResults(s.send(id, cancel(1)))
		s.granted(next, 1)
		s.wantInUse(1, 0)
	}},
	{"a cancel is not overtaken by its own acquire", protocol.Config{Capacity: 1}, func(s *client) {
		id := s.open()
		first := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
		s.wantResults(s.apply(first), protocol.Granted)
		s.wantResults(s.apply(protocol.Batch{Session: id, Seq: 2, Ops: []protocol.Op{cancel(1)}}))
		s.wantStatus(s.apply(first), protocol.Stale)
		s.wantInUse(0, 0)
		s.seqs[id] = 2
		s.wantResults(s.send(id, acquire(2, 1), cancel(2)))
		s.wantInUse(0, 0)
	}},
	{"a reply that was lost after the commit is repeated", protocol.Config{Capacity: 2}, func(s *client) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 2))[0]
		b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1), acquire(2, 1)}}
		s.wantResults(s.apply(b))
		s.wantResults(s.apply(b)) // as if the reply was lost
		s.wantInUse(2, 2)
		s.send(holder, release(lease))
		s.wantResults(s.apply(b), protocol.Granted, protocol.Granted) // and once more
		s.wantInUse(2, 0)
		s.seqs[id] = 1
		s.send(id, release(s.inspect().Leases[0].Seq))
		s.wantStatus(s.apply(b), protocol.Stale)
		s.wantInUse(1, 0)
	}},
	{"a thousand expired waiters at the head of the queue are skipped", protocol.Config{Capacity: 1, TTL: micros(2 * time.Second)}, func(s *client) {
		s.stopClock()
		const expired = 1000
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.queueSessions(expired, holder)
		id := s.open()
		s.wantResults(s.send(id, acquire(1, 1)))
		s.heartbeat(holder)
		s.expireOthers(holder, id)
		s.send(holder, release(lease))
		for calls := 0; ; calls++ {
			r := s.send(id)
			if len(r.Results) > 0 {
				s.wantResults(r, protocol.Granted)
				break
			}
			if !r.More {
				s.fail("only expired tickets are ahead, but the reply does not set More")
			}
			if calls > expired {
				s.fail("not granted in %d calls", calls)
			}
		}
		s.wantInUse(1, 0)
	}},
	{"a heavy waiter is granted despite a stream of light ones", protocol.Config{Capacity: 4}, func(s *client) {
		light, heavy := s.open(), s.open()
		held := s.granted(light, 4, acquire(1, 1), acquire(2, 1), acquire(3, 1), acquire(4, 1))
		s.wantResults(s.send(heavy, acquire(1, 4)))
		for n := protocol.Ticket(5); len(held) > 0; n++ {
			s.wantResults(s.send(light, release(held[0]), acquire(n, 1), try(100+n, 1)), protocol.Full)
			held = held[1:]
		}
		s.granted(heavy, 1)
		s.wantInUse(4, 4)
	}},
	{"partial releases grant a heavy waiter", protocol.Config{Capacity: 6}, func(s *client) {
		holder, id := s.open(), s.open()
		leases := s.granted(holder, 2, acquire(1, 3), acquire(2, 3))
		s.wantResults(s.send(id, acquire(1, 4)))
		s.send(holder, protocol.Op{Verb: protocol.Release, Lease: leases[0], Weight: 2})
		s.wantResults(s.send(id))
		s.send(holder, protocol.Op{Verb: protocol.Release, Lease: leases[1], Weight: 2})
		s.wantInUse(6, 0)
		s.granted(id, 1)
	}},
	{"capacity 0 pauses a semaphore, and a higher capacity resumes it", protocol.Config{Capacity: 2}, func(s *client) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 2))[0]
		s.wantResults(s.send(id, acquire(1, 2)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 0 }))
		s.wantResults(s.send(id, acquire(2, 5), try(3, 1)), protocol.Full)
		s.wantResults(s.send(holder, release(lease)))
		s.wantInUse(0, 2)
		s.heartbeat(holder, id)
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 1 }))
		s.wantResults(s.send(id), protocol.TooLarge, protocol.TooLarge)
		s.granted(id, 1, acquire(4, 1))
	}},
	{"order is that of commits across sessions of one instance", protocol.Config{Capacity: 1}, func(s *client) {
		holder := s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		ids := []protocol.Session{s.open(), s.open(), s.open()}
		want := []protocol.Session{}
		for n := range 9 { // the youngest session first
			id := ids[len(ids)-1-n%len(ids)]
			s.wantResults(s.send(id, acquire(protocol.Ticket(n+1), 1)))
			want = append(want, id)
		}
		for n, id := range want {
			s.send(holder, release(lease))
			got := s.inspect().Leases[0]
			if got.Session != id {
				s.fail("lease %d is that of session %d, want %d", n, got.Session, id)
			}
			holder, lease = id, got.Seq
		}
	}},
	{"a waiter keeps its place through an outage shorter than its TTL", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		holder, id, next := s.open(), s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, acquire(1, 1)))
		s.wantResults(s.send(next, acquire(1, 1)))
		for range 4 { // heartbeats that arrive just in time
			s.pass(s.ttl() * 2 / 3)
			s.heartbeat(holder, next, id)
		}
		s.send(holder, release(lease))
		s.wantResults(s.send(next))
		s.granted(id, 1)
	}},
}

// queueSessions queues a ticket in each of n new sessions, while it keeps another session alive.
func (s *client) queueSessions(n int, alive protocol.Session) {
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
			s.heartbeat(alive)
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
