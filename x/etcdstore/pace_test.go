package etcdstore

import (
	"math/rand/v2"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// TestPace_IsNeverFasterThanTime simulates processes that start and end, write at random
// times, learn late of what others write, and have wall clocks that differ by days. It
// tests the inequality in the comment of type pace.
func TestPace_IsNeverFasterThanTime(t *testing.T) {
	t.Parallel()
	const ttl = protocol.Micros(6_000_000)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var real protocol.Micros
		type member struct {
			pace
			seen int // entries it knows
		}
		newMember := func() *member {
			offset := protocol.Micros(random.Int64N(1e12))
			return &member{pace: pace{clock: clock{elapsed: func() protocol.Micros { return real + offset }}}}
		}
		members := []*member{newMember(), newMember(), newMember(), newMember()}
		type written struct{ r, at protocol.Micros } // at: real
		log := []written{{0, 0}}
		for range 400 {
			real += protocol.Micros(random.Int64N(int64([]protocol.Micros{1000, ttl / 12, ttl / 6, ttl / 3, 4 * ttl}[random.IntN(5)])))
			i := random.IntN(len(members))
			if random.IntN(40) == 0 {
				members[i] = newMember()
			}
			m := members[i]
			if m.seen == 0 {
				m.seen = len(log) - 1 // it reads the last entry only
			}
			for ; m.seen < len(log); m.seen++ {
				m.learn(log[m.seen].r, ttl)
			}
			m.take()
			real += protocol.Micros(random.Int64N(5000)) // the request is on its way
			if random.IntN(5) == 0 {
				m.rewind() // it was not written
				continue
			}
			now := written{m.passed, real}
			for _, before := range log {
				if measured, passed := now.r-before.r, now.at-before.at; measured > passed+ttl/6 {
					t.Fatalf("seed %d: %d µs were measured in %d", seed, measured, passed)
				}
			}
			if last := log[len(log)-1]; now.r < last.r {
				t.Fatalf("seed %d: time went back from %d to %d", seed, last.r, now.r)
			}
			log = append(log, now)
			real += protocol.Micros(random.Int64N(5000)) // the reply is on its way
			m.learn(now.r, ttl)
			m.seen = len(log)
		}
	}
}

// TestPace_KeepsUpWithTime is the other half: a process that sends a batch every sixth of a
// TTL, as the first waiter of the queue does, measures all time, whatever others write.
func TestPace_KeepsUpWithTime(t *testing.T) {
	t.Parallel()
	const ttl = protocol.Micros(6_000_000)
	var real protocol.Micros
	elapsed := clock{elapsed: func() protocol.Micros { return real }}
	waiter, holder := pace{clock: elapsed}, pace{clock: elapsed}
	waiter.learn(0, ttl)
	holder.learn(0, ttl)
	for i := range 60 {
		real += ttl / 12
		if i%4 == 0 {
			holder.learn(waiter.at, ttl)
			holder.take()
			holder.learn(holder.passed, ttl)
			waiter.learn(holder.at, ttl)
		}
		if i%2 == 1 {
			waiter.take()
			waiter.learn(waiter.passed, ttl)
		}
	}
	if waiter.at < real*95/100 {
		t.Errorf("%d µs were measured in %d", waiter.at, real)
	}
}
