package fleettest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// hintChecks are about being told that there is news.
var hintChecks = []Check{
	check("the one who won is told, and nobody else", protocol.Config{Capacity: 1}, func(s *speaker) {
		var heard [3]atomic.Int64
		instances := []string{s.name + "/a", s.name + "/b", s.name + "/c"}
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		for i, instance := range instances {
			go s.store.Listen(ctx, instance, func(name string) {
				if name == s.name {
					heard[i].Add(1)
				}
			})
		}
		time.Sleep(settling)
		holder, next, last := s.openAs(instances[0]), s.openAs(instances[1]), s.openAs(instances[2])
		const grants = 5
		for n := range protocol.Ticket(grants) {
			lease := s.granted(holder, 1, acquire(n+1, 1))[0]
			s.wantFates(s.say(next, acquire(n+1, 1)))
			s.wantFates(s.say(last, acquire(n+1, 1)))
			s.say(holder, release(lease))
			for deadline := time.Now().Add(2 * time.Second); heard[1].Load() <= int64(n); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					s.fail("the one who won was not told of grant %d", n+1)
				}
			}
			s.say(next, release(s.granted(next, 1)[0]))
			s.say(last, release(s.granted(last, 1)[0]))
		}
		time.Sleep(settling)
		// The last one is served by the release of the one before it.
		for i, want := range []int64{0, grants, grants} {
			if got := heard[i].Load(); got != want {
				s.fail("instance %d was told %d times, want %d", i, got, want)
			}
		}
	}),
}

// settling is how long a subscription may take to be there, and a stray hint to
// arrive.
const settling = 100 * time.Millisecond
