package redisstore

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// twoPrograms returns two stores on one server. Each has a program of its own, with a cache of
// its own.
func twoPrograms(t *testing.T) (a, b *Store) {
	server := redistest.Start(t)
	a, b = openServer(t, server), openServer(t, server)
	b.program = assemble(func(part string) string { return part + "-- another program\nlocal another = 2\n" })
	if a.program.apply.name == b.program.apply.name {
		t.Fatal("the programs have the same name")
	}
	return a, b
}

// TestCache_SeesTheQueueOfAnotherProgram checks that an acquire does not overtake a waiter that
// another program has queued since this one cached the number of waiters.
func TestCache_SeesTheQueueOfAnotherProgram(t *testing.T) {
	t.Parallel()
	one, other := twoPrograms(t)
	waiter := sessiontest.Begin(t, one, "db", protocol.Config{Capacity: 1})
	holder := sessiontest.Begin(t, other, "db", protocol.Config{})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	for n := protocol.Ticket(2); n < 5; n++ {
		waiter.Granted(0, sessiontest.Acquire(n, 1))
		holder.Granted(0, sessiontest.Release(lease), sessiontest.Acquire(n, 1))
		first := waiter.Granted(1)[0]
		waiter.Send(sessiontest.Release(first))
		lease = holder.Granted(1)[0]
	}
	sessiontest.WantHeld(t, one, "db", lease)
}

// TestCache_SeesTheSessionOfAnotherProgram checks that a repeated acquire is not queued twice if
// another program has queued it since this one cached the session.
func TestCache_SeesTheSessionOfAnotherProgram(t *testing.T) {
	t.Parallel()
	one, other := twoPrograms(t)
	holder := sessiontest.Begin(t, one, "db", protocol.Config{Capacity: 1})
	holder.Granted(1, sessiontest.Acquire(1, 1))
	waiter := sessiontest.Begin(t, one, "db", protocol.Config{})
	for n := protocol.Ticket(1); n < 4; n++ {
		waiter.SendTo(other)
		waiter.SendTo(one, sessiontest.Acquire(n, 1))
		waiter.SendTo(other, sessiontest.Acquire(n, 1))
		snapshot, err := other.Inspect(ctx, "db")
		if err != nil {
			t.Fatal(err)
		}
		if len(snapshot.Queue) != int(n) {
			t.Fatalf("%d tickets are queued, want %d: %+v", len(snapshot.Queue), n, snapshot.Queue)
		}
	}
}

// TestCache_IsDiscardedAfterAnotherRun checks that nothing cached is used after another process has
// served, even if it has written the same stamp, as it may after its clock has stepped back.
func TestCache_IsDiscardedAfterAnotherRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	s := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1})
	s.Send()
	snapshot, err := store.Inspect(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	changed := snapshot.Config
	changed.Capacity = 7
	server.Must("HSET", "{sema:db}", "config", string(packConfig(changed)))
	run, rest, _ := strings.Cut(server.Must("GET", "sema:server"), " ")
	server.Must("SET", "sema:server", strings.Repeat("0", len(run))+" "+rest)
	if snapshot, err = store.Inspect(ctx, "db"); err != nil || snapshot.Config.Capacity != 7 {
		t.Errorf("capacity %d, error %v, want that of the other run", snapshot.Config.Capacity, err)
	}
}

// TestCache_IsBounded opens more sessions than the program caches.
func TestCache_IsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	store.program = assemble(func(part string) string { return strings.Replace(part, "MAX_CACHED = 4000", "MAX_CACHED = 3", 1) })
	if store.program.library == standard().library {
		t.Fatal("the program does not contain the bound")
	}
	var sessions []*sessiontest.Session
	for _, name := range []string{"db", "api"} {
		for range 5 {
			sessions = append(sessions, sessiontest.Begin(t, store, name, protocol.Config{Capacity: 2}))
		}
	}
	for n := protocol.Ticket(1); n < 4; n++ {
		for i := range 2 {
			of := sessions[5*i : 5*i+5]
			a, b := of[0].Granted(1, sessiontest.Acquire(n, 1))[0], of[1].Granted(1, sessiontest.Acquire(n, 1))[0]
			of[2].Granted(0, sessiontest.Acquire(n, 2))
			of[0].Send(sessiontest.Release(a))
			of[3].Send()
			of[1].Send(sessiontest.Release(b))
			of[4].Send()
			of[2].Send(sessiontest.Release(of[2].Granted(1)[0]))
		}
	}
	sessiontest.WantHeld(t, store, "db")
	sessiontest.WantHeld(t, store, "api")
}
