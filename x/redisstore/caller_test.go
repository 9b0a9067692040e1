package redisstore

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// connections counts the connections of stores.
func connections(server *redistest.Server) (n int) {
	for line := range strings.Lines(server.Must("CLIENT", "LIST")) {
		if strings.Contains(line, " name=sema ") {
			n++
		}
	}
	return n
}

// TestCaller_UsesTwoConnections checks that one call at a time uses a connection of its own,
// and that all others share one.
func TestCaller_UsesTwoConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	a := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	b := sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 1})
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	send := func(ctx context.Context, s *sessiontest.Session) {
		t.Helper()
		if r, err := store.Apply(ctx, s.Name, s.Next()); err != nil || r.Status != protocol.Applied {
			t.Fatal(r, err)
		}
	}
	send(ctx, a)
	if n := connections(server); n != 1 {
		t.Fatalf("%d connections without a deadline, want 1", n)
	}
	send(within, a)
	if n := connections(server); n != 2 {
		t.Fatalf("%d connections after a call with a deadline, want 2", n)
	}
	server.Pause()
	var wg sync.WaitGroup
	for _, s := range []*sessiontest.Session{a, b} {
		batch := s.Next()
		for range 8 {
			wg.Go(func() {
				if _, err := store.Apply(within, s.Name, batch); err != nil {
					t.Error(err)
				}
			})
		}
	}
	time.Sleep(250 * time.Millisecond) // until most calls have begun; the result does not depend on it
	server.Continue()
	wg.Wait()
	if n := connections(server); n > 2 {
		t.Errorf("%d connections after concurrent calls, want 2", n)
	}
}

// TestCaller_HungServerIsNotWaitedFor checks that a direct call ends soon after its context is
// cancelled, before its own deadline.
func TestCaller_HungServerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, err := Open(ctx, Options{Addresses: []string{server.Address}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	by := protocol.Opener{Client: protocol.Client{Instance: "hung"}, Owner: protocol.Owner{Key: protocol.NewKey()}}
	id, _, err := store.Open(ctx, "db", protocol.Config{Capacity: 1, TTL: 300e6}, by)
	if err != nil {
		t.Fatal(err)
	}
	// The shortest of several tries counts, since a busy machine may delay any of them.
	const limit = directTimeout * 3 / 4
	shortest := time.Hour
	server.Pause()
	defer server.Continue()
	for try := 0; try < 20 && shortest > limit; try++ {
		patient, cancel := context.WithTimeout(ctx, time.Minute)
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := store.Apply(patient, "db", protocol.Batch{Session: id, Owner: by.Owner, Seq: 1}); err == nil {
			t.Error("a paused server has replied")
		}
		shortest = min(shortest, time.Since(began))
		cancel()
	}
	if shortest > limit {
		t.Errorf("calls took at least %v after their context was cancelled", shortest)
	}
}

// TestCaller_CancelledAtAnyPoint lets callers of two clients give up at random times, until many
// have interrupted their calls, and checks that no permit is granted twice or lost.
func TestCaller_CancelledAtAnyPoint(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const capacity, enough = 2, 20
	var held, granted atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		client := fleet.New(openServer(t, server))
		semaphore, err := client.Semaphore("db", capacity)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(ctx)
		for range 3 {
			wg.Go(func() {
				for !stop.Load() {
					giving, cancel := context.WithCancel(ctx)
					time.AfterFunc(rand.N(300*time.Microsecond), cancel)
					if p, err := semaphore.Acquire(giving, 1); err == nil {
						granted.Add(1)
						if n := held.Add(1); n > capacity {
							t.Errorf("%d holders of %d permits", n, capacity)
						}
						held.Add(-1)
						_ = fleet.Release(giving, p)
					}
					cancel()
				}
			})
		}
	}
	opened := map[string]bool{} // connections of the stores; an interrupted call needs another one
	for began := time.Now(); len(opened) < enough || granted.Load() < enough; time.Sleep(time.Millisecond) {
		for line := range strings.Lines(server.Must("CLIENT", "LIST")) {
			if id, _, _ := strings.Cut(line, " "); strings.Contains(line, " name=sema ") {
				opened[id] = true
			}
		}
		if time.Since(began) > time.Minute {
			t.Errorf("%d connections and %d grants within a minute", len(opened), granted.Load())
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	store := openServer(t, server)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		leases, queue := sessiontest.Held(t, store, "db")
		if len(leases)+len(queue) == 0 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("leases %v, queue %v", leases, queue)
		}
	}
}
