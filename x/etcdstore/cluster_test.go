//go:build unix

package etcdstore

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// wantWork fails unless everybody got a share, nobody waited for too long and
// nothing was lost.
func (r result) wantWork(t *testing.T, longest time.Duration) {
	t.Helper()
	t.Logf("%d pairs %v, %d lost, the longest wait %v; %d transactions, %d writes, %d conflicts", r.pairs, r.each, r.lost, r.worst, r.transactions, r.writes, r.conflicts)
	for i, pairs := range r.each {
		if pairs < enough {
			t.Errorf("process %d had its turn %d times, want %d at least", i, pairs, enough)
		}
	}
	if r.worst > longest {
		t.Errorf("somebody waited for %v, want %v at most", r.worst, longest)
	}
	if r.lost > 0 {
		t.Errorf("%d permits were lost", r.lost)
	}
}

// These tests are alone: with others beside them, etcd hardly gets to its disk.

// TestFourProcessesContend, with clocks that are hours apart.
func TestFourProcessesContend(t *testing.T) {
	server := etcdtest.Start(t, 1)
	load := rush{members: strings.Join(server.Addresses(), ","), capacity: 3, callers: 8, hold: 2 * time.Millisecond, shares: true}
	r := load.run(t, []time.Duration{0, time.Hour, -time.Hour, 25 * time.Hour}, func() { time.Sleep(4 * time.Second) })
	r.wantWork(t, 4*time.Second)
}

// TestTheLeaderIsKilled, and started again, in the middle of load.
func TestTheLeaderIsKilled(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	load := rush{members: strings.Join(cluster.Addresses(), ","), capacity: 3, callers: 4, hold: 2 * time.Millisecond, shares: true}
	r := load.run(t, []time.Duration{0, time.Hour, 0, -time.Hour}, func() {
		time.Sleep(time.Second)
		leader := cluster.Leader()
		leader.Kill()
		time.Sleep(2 * time.Second)
		leader.Restart()
		time.Sleep(2 * time.Second)
	})
	r.wantWork(t, 8*time.Second)
}

// TestOneOfThreeIsCutOff: it is frozen, which is to others as if it were cut off,
// first one that follows and then the one that leads.
func TestOneOfThreeIsCutOff(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	load := rush{members: strings.Join(cluster.Addresses(), ","), capacity: 2, callers: 4, hold: 2 * time.Millisecond, shares: true}
	r := load.run(t, four, func() {
		for _, n := range []*etcdtest.Node{cluster.Followers()[0], cluster.Leader()} {
			time.Sleep(time.Second)
			n.Pause()
			time.Sleep(3 * time.Second)
			n.Continue()
		}
		time.Sleep(time.Second)
	})
	r.wantWork(t, 8*time.Second)
}

// TestWithoutAMajorityNobodyIsAnswered, and what was said is heard once there is
// one again.
func TestWithoutAMajorityNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	store := openAt(t, cluster, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	followers := cluster.Followers()
	for _, n := range followers {
		n.Kill()
	}
	b := s.Next(sessiontest.Acquire(2, 1))
	_, err := store.Apply(limited(t, 2500*time.Millisecond), "a", b)
	wantError(t, err, "majority")
	_, err = store.Inspect(limited(t, 2500*time.Millisecond), "a")
	wantError(t, err, "majority") // it is not read from who may not know
	var wg sync.WaitGroup
	for _, n := range followers {
		wg.Go(n.Restart)
	}
	wg.Wait()
	r, err := store.Apply(limited(t, 20*time.Second), "a", b)
	for ; err != nil && t.Context().Err() == nil; r, err = store.Apply(ctx, "a", b) {
		time.Sleep(50 * time.Millisecond)
	}
	if len(r.Results) != 1 || r.Results[0].Kind != protocol.Granted {
		t.Fatalf("%+v, %v", r, err)
	}
	sessiontest.WantHeld(t, store, "a", lease, r.Results[0].Lease)
}
