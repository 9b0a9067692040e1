package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
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

// TestCaller_HungServerDelaysNoClose checks that a call on the connection of its own, which
// its context does not interrupt, ends soon after a client is closed.
func TestCaller_HungServerDelaysNoClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, err := Open(ctx, Options{Addresses: []string{server.Address}})
	if err != nil {
		t.Fatal(err)
	}
	client := fleet.New(store)
	s, err := client.Semaphore("db", 2, fleet.TTL(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Release(ctx, p); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Continue()
	failed := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, 1)
		failed <- err
	}()
	time.Sleep(250 * time.Millisecond)
	at, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = client.Close(at, fleet.CloseAbandon)
	if err := <-failed; !errors.Is(err, sema.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Close took %v", took)
	}
}
