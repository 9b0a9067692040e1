package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// rewriteAsFirstLayout has a semaphore be as the release before this one has written
// it: its state had another name, and less in it.
func rewriteAsFirstLayout(server *redistest.Server, key string) {
	const size = 21 * 8
	server.Must("HSET", key, "state", server.Must("HGET", key, "state2")[:size])
	server.Must("HDEL", key, "state2")
}

func TestStore_OtherLayoutIsRejected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	s := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 2})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	rewriteAsFirstLayout(server, "{sema:db}")
	before := server.Must("DUMP", "{sema:db}")
	config := protocol.Config{Capacity: 2, TTL: sessiontest.TTL, Protocol: protocol.Version}
	for what, do := range map[string]func() error{
		"open":      func() error { _, _, err := store.Open(ctx, "db", config, sessiontest.Opener("test")); return err },
		"apply":     func() error { _, err := store.Apply(ctx, "db", s.Next(sessiontest.Release(lease))); return err },
		"inspect":   func() error { _, err := store.Inspect(ctx, "db"); return err },
		"configure": func() error { return store.Administer(ctx, "db", fleet.Command{Configure: &config}) },
		"revoke": func() error {
			return store.Administer(ctx, "db", fleet.Command{Revoke: &fleet.Revocation{Lease: lease}})
		},
	} {
		if err := do(); !errors.Is(err, protocol.ErrVersion) || !strings.Contains(err.Error(), `"db"`) || !strings.Contains(err.Error(), "another release") {
			t.Errorf("%s: error %v, want one about the layout", what, err)
		}
	}
	if server.Must("DUMP", "{sema:db}") != before {
		t.Error("what was rejected was changed")
	}
	if err := store.Administer(ctx, "db", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	if next := sessiontest.Begin(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))[0]; next <= lease {
		t.Errorf("lease %d after %d", next, lease)
	}
}

// A call that fails half way has changed what the program remembers, and nothing else.
func TestStore_FailedCallIsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1})
	waiter := sessiontest.Begin(t, holder.Store, "db", protocol.Config{})
	holder.Granted(1, sessiontest.Acquire(1, 1))
	holder.Say()
	server.Must("SET", "{sema:db}:queue", "by hand, of the wrong type")
	if _, err := waiter.Store.Apply(ctx, "db", waiter.Next(sessiontest.Acquire(1, 1))); err == nil {
		t.Fatal("the ticket was queued")
	}
	server.Must("DEL", "{sema:db}:queue")
	if r := holder.Say(); r.Wanted != 0 || r.First != 0 {
		t.Errorf("%+v, though nobody waits", r)
	}
}
