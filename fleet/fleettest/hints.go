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
	settling = 100 * time.Millisecond // how long a stray hint may take to arrive
	patience = 5 * time.Second        // and one that has to come
)

// listeners are instances, and how often each was told of a semaphore.
type listeners struct {
	*speaker
	instances []string
	told      []atomic.Int64
	warm      []atomic.Int64 // of another semaphore, see ready
	stop      func()
}

// listen has so many instances listen until they are stopped.
func (s *speaker) listen(n int) *listeners {
	ctx, cancel := context.WithCancel(s.ctx)
	l := &listeners{speaker: s, told: make([]atomic.Int64, n), warm: make([]atomic.Int64, n)}
	other := s.another()
	var wg sync.WaitGroup
	for i := range n {
		instance := fmt.Sprintf("%s/%d", s.name, i)
		l.instances = append(l.instances, instance)
		wg.Go(func() {
			_ = s.store.Listen(ctx, instance, func(name string) {
				switch name {
				case s.name:
					l.told[i].Add(1)
				case other.name:
					l.warm[i].Add(1)
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

// ready waits until all who listen are told something: a subscription takes
// some time, of which nothing tells the end.
func (l *listeners) ready(other *speaker) {
	defer other.remove()
	other.config = protocol.Config{Capacity: 1, TTL: long, Protocol: protocol.Version}
	holder := other.openAs(other.name)
	for i, instance := range l.instances {
		id := other.openAs(instance)
		deadline := time.Now().Add(patience)
		for n := protocol.Ticket(1); l.warm[i].Load() == 0; n++ {
			if time.Now().After(deadline) {
				l.stop()
				l.fail("instance %d listens, and is not told of anything", i)
			}
			lease := other.granted(holder, 1, acquire(n, 1))[0]
			other.wantResults(other.say(id, acquire(n, 1)))
			other.say(holder, release(lease))
			time.Sleep(10 * time.Millisecond)
			other.say(id, release(other.granted(id, 1)[0]))
		}
	}
}

// await fails unless an instance has been told so often, or is so soon.
func (l *listeners) await(i int, times int64) {
	for deadline := time.Now().Add(patience); l.told[i].Load() < times; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.fail("instance %d was told %d times, want %d", i, l.told[i].Load(), times)
		}
	}
}

// silence fails if an instance is told something now.
func (l *listeners) silence(instances ...int) {
	time.Sleep(settling)
	for _, i := range instances {
		if n := l.told[i].Load(); n > 0 {
			l.fail("instance %d has no news, and was told of it %d times", i, n)
		}
	}
}

// hintScripts are about being told that there is news.
var hintScripts = []script{
	{"the one who won is told, and nobody else", protocol.Config{Capacity: 1}, func(s *speaker) {
		l := s.listen(5)
		defer l.stop()
		var line []protocol.Session
		for _, instance := range l.instances {
			id := s.openAs(instance)
			line = append(line, id)
			s.say(id, acquire(1, 1))
		}
		for i, id := range line[:len(line)-1] {
			lease := s.inspect().Leases[0]
			if lease.Session != id {
				s.fail("it is not the turn of instance %d", i)
			}
			s.say(id, release(lease.Seq))
			l.await(i+1, 1)
			if i < 2 {
				l.silence(0, 2+i, 3, 4)
			}
		}
	}},
	{"whose turn comes by a death is told", protocol.Config{Capacity: 1, TTL: short}, func(s *speaker) {
		s.stopClock()
		l := s.listen(3)
		defer l.stop()
		// The last to come speaks once, when the holder cannot be dead yet, and
		// outlives it by a third of a TTL.
		holder, other := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		s.granted(holder, 1, acquire(1, 1))
		for range 2 {
			s.pass(s.ttl() / 6)
			s.hear(other)
		}
		s.wantResults(s.say(s.openAs(l.instances[2]), acquire(1, 1)))
		for n := 0; s.say(other).Wanted > 0; n++ {
			if n > 6 {
				s.fail("the death is not noticed")
			}
			s.pass(s.ttl() / 6)
		}
		l.await(2, 1)
	}},
	{"whose turn comes by a change is told", protocol.Config{Capacity: 1}, func(s *speaker) {
		l := s.listen(2)
		defer l.stop()
		holder, id := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, acquire(1, 1), acquire(2, 1)))
		s.must(s.configure(func(c *protocol.Config) { c.Capacity = 2 }))
		l.await(1, 1)
		s.granted(id, 1)
		s.must(s.revoke(lease, true))
		l.await(1, 2)
		l.await(0, 1)
		s.granted(id, 1)
		s.wantResults(s.say(holder), protocol.Revoked)
	}},
	{"who has a block is told that others wait", protocol.Config{Capacity: 4}, func(s *speaker) {
		l := s.listen(2)
		defer l.stop()
		holder, id := s.openAs(l.instances[0]), s.openAs(l.instances[1])
		lease := s.granted(holder, 1, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 4, Least: 1, Pooled: true})[0]
		if s.say(holder).Recall {
			s.fail("a block is recalled, but nobody waits")
		}
		s.wantResults(s.say(id, acquire(1, 1)))
		l.await(0, 1)
		if !s.say(holder).Recall {
			s.fail("a block is not recalled, but somebody waits")
		}
		s.say(holder, protocol.Op{Verb: protocol.Release, Lease: lease, Weight: 1})
		l.await(1, 1)
		s.granted(id, 1)
	}},
	{"who does not listen hears of it at the next sign of life", protocol.Config{Capacity: 1}, func(s *speaker) {
		holder, id := s.open(), s.open()
		lease := s.granted(holder, 1, acquire(1, 1))[0]
		s.wantResults(s.say(id, acquire(1, 1)))
		s.say(holder, release(lease))
		s.wantInUse(1, 0) // granted, though it has not been heard of
		s.granted(id, 1)
	}},
}
