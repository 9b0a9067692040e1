package fleettest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	strayTimeout  = 100 * time.Millisecond // time in which an unwanted notification would arrive
	notifyTimeout = 15 * time.Second       // timeout of an expected notification, also on a busy machine
)

// listeners are instances that listen, with the number of notifications that each received.
type listeners struct {
	*client
	instances []string
	received  []atomic.Int64
	warmUps   []atomic.Int64 // notifications of another semaphore, see ready
	stop      func()
}

// listen starts n listening instances.
func (s *client) listen(n int) *listeners {
	ctx, cancel := context.WithCancel(s.ctx)
	l := &listeners{client: s, received: make([]atomic.Int64, n), warmUps: make([]atomic.Int64, n)}
	other := s.another()
	var wg sync.WaitGroup
	for i := range n {
		instance := fmt.Sprintf("%s/%d", s.name, i)
		l.instances = append(l.instances, instance)
		wg.Go(func() {
			_ = s.store.Listen(ctx, instance, func(name string) {
				switch name {
				case s.name:
					l.received[i].Add(1)
				case other.name:
					l.warmUps[i].Add(1)
				}
			})
		})
	}
	l.stop = func() {
		cancel()
		wg.Wait()
	}
	l.ready(&other)
	return l
}

// ready waits until each listener has received a notification: a subscription takes some time,
// and nothing reports when it is complete.
func (l *listeners) ready(other *client) {
	defer other.remove()
	other.config = protocol.Config{Capacity: 1, TTL: long, Protocol: protocol.Version}
	holder := other.openAs(other.name)
	for i, instance := range l.instances {
		id := other.openAs(instance)
		deadline := time.Now().Add(notifyTimeout)
		for n := protocol.Ticket(1); l.warmUps[i].Load() == 0; n++ {
			if time.Now().After(deadline) {
				l.stop()
				l.fail("listener %d receives no notification", i)
			}
			lease := other.granted(holder, 1, acquire(n, 1))[0]
			other.wantResults(other.send(id, acquire(n, 1)))
			other.send(holder, release(lease))
			time.Sleep(10 * time.Millisecond)
			other.send(id, release(other.granted(id, 1)[0]))
		}
	}
}

// await waits until an instance has received so many notifications, and fails after a timeout.
func (l *listeners) await(i int, times int64) {
	for deadline := time.Now().Add(notifyTimeout); l.received[i].Load() < times; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.fail("instance %d received %d notifications, want %d", i, l.received[i].Load(), times)
		}
	}
}

// wantNone waits a moment and fails if one of the instances has received a notification.
func (l *listeners) wantNone(instances ...int) {
	time.Sleep(strayTimeout)
	for _, i := range instances {
		if n := l.received[i].Load(); n > 0 {
			l.fail("instance %d received %d notifications, want none", i, n)
		}
	}
}

// notifyScripts check notifications.
var notifyScripts = []script{
	{"only the instance with the new grant is notified", protocol.Config{Capacity: 1}, func(s *client) {
		l := s.listen(5)
		defer l.stop()
		var queue []protocol.Session
		for _, instance := range l.instances {
			id := s.openAs(instance)
			queue = append(queue, id)
			s.send(id, acquire(1, 1))
		}
		for i, id := range queue[:len(queue)-1] {
			lease := s.inspect().Leases[0]
			if lease.Session != id {
				s.fail("the lease is not that of instance %d", i)
			}
			s.send(id, release(lease.Seq))
			l.await(i+1, 1)
			if i < 2 {
				l.wantNone(0, 2+i, 3, 4)
			}
		}
	}},
	{"an instance that is granted by an expiry is notified", protocol.Config{Capacity: 1, TTL: short}, func(s *client) {
		s.stopClock()
		l := s.listen(3)
		defer l.stop()
		// The last session sends one batch, when the holder cannot have expired yet, and
		// expires a third of a TTL after the holder.
		holder, other := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		s.granted(holder, 1, acquire(1, 1))
		for range 2 {
			s.pass(s.ttl() / 6)
			s.heartbeat(other)
		}
		s.wantResults(s.send(s.openAs(l.instances[2]), acquire(1, 1)))
		for n := 0; s.send(other).Wanted > 0; n++ {
			if n > 6 {
				s.fail("the holder has not expired")
			}
			s.pass(s.ttl() / 6)
		}
		l.await(2, 1)
	}},
	{"an instance that is granted by a change is notified", protocol.Config{Capacity: 1}, func(s *client) {
		l := s.listen(2)
		defer l.stop()
		holder, id := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, acquire(1, 1), acquire(2, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 2 }))
		l.await(1, 1)
		s.granted(id, 1)
		s.must(s.revoke(lease, true))
		l.await(1, 2)
		l.await(0, 1)
		s.granted(id, 1)
		s.wantResults(s.send(holder), protocol.Revoked)
	}},
	{"an instance with a block is notified when others wait", protocol.Config{Capacity: 4}, func(s *client) {
		l := s.listen(2)
		defer l.stop()
		holder, id := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		lease := s.granted(holder, 1, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 4, Least: 1, Pooled: true})[0]
		if s.send(holder).Recall {
			s.fail("a block is recalled, but no ticket waits")
		}
		s.wantResults(s.send(id, acquire(1, 1)))
		l.await(0, 1)
		if !s.send(holder).Recall {
			s.fail("a block is not recalled, but a ticket waits")
		}
		s.send(holder, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1})
		l.await(1, 1)
		s.granted(id, 1)
	}},
	{"an instance that does not listen gets its grant with the next heartbeat", protocol.Config{Capacity: 1}, func(s *client) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.send(id, acquire(1, 1)))
		s.send(holder, release(lease))
		s.wantInUse(1, 0) // granted, although the session has not received the result
		s.granted(id, 1)
	}},
}
