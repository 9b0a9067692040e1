//go:build unix

package etcdstore

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// wantWork fails the test unless every process was served often enough, no acquire took too
// long and no permit was lost.
func (r loadReport) wantWork(t *testing.T, longest time.Duration) {
	t.Helper()
	t.Logf("%d pairs %v, %d lost, the longest wait %v; %d transactions, %d writes, %d conflicts", r.pairs, r.each, r.lost, r.worst, r.transactions, r.writes, r.conflicts)
	for i, pairs := range r.each {
		if pairs < enough {
			t.Errorf("process %d acquired %d times, want %d at least", i, pairs, enough)
		}
	}
	if r.worst > longest {
		t.Errorf("an acquire took %v, want %v at most", r.worst, longest)
	}
	if r.lost > 0 {
		t.Errorf("%d permits were lost", r.lost)
	}
}

// These tests do not run in parallel: with others beside them, etcd rarely gets to its disk.

// TestStore_ServesFourProcesses runs four processes whose clocks are hours apart.
func TestStore_ServesFourProcesses(t *testing.T) {
	server := etcdtest.Start(t, 1)
	load := workload{members: strings.Join(server.Addresses(), ","), capacity: 3, callers: 8, hold: 2 * time.Millisecond, combines: true}
	r := load.run(t, []time.Duration{0, time.Hour, -time.Hour, 25 * time.Hour}, func() { time.Sleep(4 * time.Second) })
	r.wantWork(t, 4*time.Second)
}

// TestStore_WorksWhileTheLeaderIsKilled kills and restarts the leader under load.
func TestStore_WorksWhileTheLeaderIsKilled(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	load := workload{members: strings.Join(cluster.Addresses(), ","), capacity: 3, callers: 4, hold: 2 * time.Millisecond, combines: true}
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

// TestStore_WorksWhileAMemberIsPaused pauses a follower and then the leader, which others
// observe as a partition.
func TestStore_WorksWhileAMemberIsPaused(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	load := workload{members: strings.Join(cluster.Addresses(), ","), capacity: 2, callers: 4, hold: 2 * time.Millisecond, combines: true}
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

// TestStore_FailsWithoutAMajority checks that operations fail, and that a batch is applied
// when there is a majority again.
func TestStore_FailsWithoutAMajority(t *testing.T) {
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
	storetest.WantError(t, err, "majority")
	_, err = store.Inspect(limited(t, 2500*time.Millisecond), "a")
	storetest.WantError(t, err, "majority") // it is not read from a member that may be behind
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
