package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// writeUnreleased writes a semaphore in the layout before data version 1: a configuration
// of ten numbers, a state field of another name, and a lease.
func writeUnreleased(server *redistest.Server, state string) {
	config := make([]byte, 10*8)
	server.Must("HSET", "{sema:db}", "config", string(config), state, string(make([]byte, 21*8)), "capacity", "2", "version", "1", "L7", "1 3")
	server.Must("ZADD", "{sema:db}:leases", "7", "7 session=3 weight=1 since=5 as=permit meta=")
	server.Must("ZADD", "{sema:db}:line", "1", "1 session=3 weight=1 least=1 until=0 as=permit meta=")
}

func TestStore_RejectsOtherLayouts(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"state":  "created by an unreleased version of Sema (hint: delete it, or use another prefix or database)",
		"state2": "created by an unreleased version of Sema (hint: delete it, or use another prefix or database)",
		"data1":  "created by an unreleased version of Sema (hint: delete it, or use another prefix or database)",
		"data3":  "another release of Sema has written it",
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			store := openServer(t, server)
			sessiontest.Begin(t, store, "another", protocol.Config{Capacity: 1}) // otherwise the server counts as one that has lost data
			writeUnreleased(server, state)
			stored := func() string {
				return server.Must("HLEN", "{sema:db}") + server.Must("HMGET", "{sema:db}", "config", state, "capacity", "version", "L7")
			}
			before := stored()
			rejected := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, protocol.ErrVersion) || !strings.Contains(err.Error(), `"db"`) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %v, want %q", what, err, want)
				}
			}
			config := protocol.Config{Capacity: 2, TTL: sessiontest.TTL, Protocol: protocol.Version}
			_, _, err := store.Open(ctx, "db", config, sessiontest.Opener("test"))
			rejected("open", err)
			_, err = store.Apply(ctx, "db", protocol.Batch{Session: 3, Seq: 1})
			rejected("apply", err)
			_, err = store.Inspect(ctx, "db")
			rejected("inspect", err)
			rejected("configure", store.Administer(ctx, "db", fleet.Command{Configure: &config}))
			rejected("revoke", store.Administer(ctx, "db", fleet.Command{Revoke: &fleet.Revocation{Lease: 7}}))
			rejected("delete of a version", store.Administer(ctx, "db", fleet.Command{Delete: true, DeleteVersion: 1}))
			if state == "data3" {
				server.Must("ZADD", "sema:names", "0", "db")
				_, err = store.List(ctx, protocol.ListQuery{})
				rejected("list", err)
				rejected("delete", store.Administer(ctx, "db", fleet.Command{Delete: true}))
			}
			if stored() != before {
				t.Error("a rejected semaphore was changed")
			}
			if state == "data3" {
				return
			}
			if err := store.Administer(ctx, "db", fleet.Command{Delete: true}); err != nil {
				t.Fatal(err)
			}
			if left := server.Must("KEYS", "{sema:db}*"); left != "" {
				t.Errorf("keys %q of a deleted semaphore remain", left)
			}
			sessiontest.Begin(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))
		})
	}
}

// TestStore_FailedCallChangesNothing checks that the next call does not use the locals of
// the program that a call has changed before it failed.
func TestStore_FailedCallChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 1})
	waiter := sessiontest.Begin(t, holder.Store, "db", protocol.Config{})
	holder.Granted(1, sessiontest.Acquire(1, 1))
	holder.Send()
	server.Must("SET", "{sema:db}:queue", "by hand, of the wrong type")
	if _, err := waiter.Store.Apply(ctx, "db", waiter.Next(sessiontest.Acquire(1, 1))); err == nil {
		t.Fatal("the ticket was queued")
	}
	server.Must("DEL", "{sema:db}:queue")
	if r := holder.Send(); r.Wanted != 0 || r.First != 0 {
		t.Errorf("%+v, want no waiters", r)
	}
}
