package redisstore

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestKeys_ReadableWithRedisCLI checks that holders and waiters can be read with
// redis-cli.
func TestKeys_ReadableWithRedisCLI(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	program := storetest.Need(t, "redis-cli", "redis-tools")
	cli := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, append([]string{"-p", fmt.Sprint(server.Port)}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	began := time.Now()
	s := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 3})
	lease := s.Granted(1, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 2, Pooled: true, Details: &protocol.Details{Holder: "web-1 main.go:44"}})[0]
	s.Send(protocol.Op{Verb: protocol.Acquire, Ticket: 7, Weight: 2, Details: &protocol.Details{Holder: "web-2 main.go:45"}})
	for _, want := range []struct{ command, text string }{
		{"ZRANGE {sema:db}:leases 0 -1", fmt.Sprintf("%d session=%d weight=2 since=", lease, s.ID)},
		{"ZRANGE {sema:db}:leases 0 -1", "as=block details=holder=\"web-1 main.go:44\""},
		{"ZRANGE {sema:db}:queue 0 -1", fmt.Sprintf("7 session=%d weight=2 least=2 since=", s.ID)},
		{"ZRANGE {sema:db}:queue 0 -1", "until=0 as=permit details=holder=\"web-2 main.go:45\""},
		{"ZRANGE {sema:db}:sessions 0 -1", fmt.Sprintf("%d instance of TestKeys_ReadableWithRedisCLI", s.ID)},
		{"HMGET {sema:db} kind capacity draining ttl version", "concurrency\n3\nno\n15000000\n1"},
	} {
		if got := cli(strings.Fields(want.command)...); !strings.Contains(got, want.text) {
			t.Errorf("%s: %s\ndoes not contain %q", want.command, got, want.text)
		}
	}
	var deadline float64
	fmt.Sscan(strings.Split(cli("ZRANGE", "{sema:db}:sessions", "0", "-1", "WITHSCORES"), "\n")[1], &deadline)
	const ttl = 15 * time.Second // however long the test takes, the deadline is one TTL after one of its batches
	if at := time.UnixMicro(int64(deadline)); at.Before(began.Add(ttl-time.Second)) || at.After(time.Now().Add(ttl+time.Second)) {
		t.Errorf("the session's deadline is at %v, the test began at %v", at, began)
	}
}

// keysOf returns all keys with their remaining lifetimes in milliseconds; -1 for keys
// that do not expire.
func keysOf(t *testing.T, server *redistest.Server) map[string]string {
	t.Helper()
	lasting := map[string]string{}
	for _, key := range strings.Fields(server.Must("KEYS", "*")) {
		lasting[key] = server.Must("PTTL", key)
	}
	return lasting
}

// createKeys creates all kinds of keys.
func createKeys(t *testing.T, store *Store, name string) {
	a, b := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 2}), sessiontest.Begin(t, store, name, protocol.Config{})
	a.Send(protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 2, Pooled: true})
	b.Send(sessiontest.Acquire(1, 1))
	rate := sessiontest.Begin(t, store, name+"-rate", protocol.Config{Kind: protocol.Rate, Capacity: 2, Window: sessiontest.TTL})
	rate.Send(sessiontest.Acquire(1, 1))
}

// isServerKey reports whether a key belongs to the server and does not expire. Each clock
// of a test has its own key for the time when the server was last used.
func isServerKey(key string) bool {
	return key == "sema:server" || key == "sema:names" || strings.HasPrefix(key, "sema:server:used")
}

func TestKeys_HaveTheTagAndExpire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openClocked(t, server.URL())
	createKeys(t, store.Store, "db")
	keys := keysOf(t, server)
	// The server, its use and the names; db, sessions, leases, queue and blocks; the rate, sessions and spent.
	if len(keys) != 3+5+3 {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
	for key, lasts := range keys {
		switch {
		case isServerKey(key):
		case !strings.HasPrefix(key, "{sema:db}") && !strings.HasPrefix(key, "{sema:db-rate}"):
			t.Errorf("key %q is not under the semaphore's tag", key)
		case len(lasts) < len("600000000"):
			t.Errorf("key %q lasts for %s ms, want a week and more", key, lasts)
		}
	}

	// Use extends the expiry of all keys.
	for key := range keys {
		if !isServerKey(key) {
			server.Must("PEXPIRE", key, "100000000")
		}
	}
	store.SetClock(time.Now().Add(2 * time.Hour))
	for _, name := range []string{"db", "db-rate"} {
		if _, err := store.Inspect(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	store.SetClock(time.Time{})
	for key, lasts := range keysOf(t, server) {
		if !isServerKey(key) && !strings.HasPrefix(key, "clock") && len(lasts) < len("600000000") {
			t.Errorf("key %q lasts for %s ms after use, want a week and more", key, lasts)
		}
	}
}

func TestKeys_OfConfiguredSemaphoresDoNotExpire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	createKeys(t, store, "db")
	for _, name := range []string{"db", "db-rate"} {
		snapshot, err := store.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Administer(ctx, name, fleet.Command{Configure: &snapshot.Config}); err != nil {
			t.Fatal(err)
		}
	}
	createKeys(t, store, "db")
	for key, lasts := range keysOf(t, server) {
		if lasts != "-1" {
			t.Errorf("key %q lasts for %s ms, want no expiry", key, lasts)
		}
	}
}

func TestStore_TombstoneOfADeletedSemaphoreExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	createKeys(t, store, "db")
	for _, name := range []string{"db", "db-rate"} {
		if err := store.Administer(ctx, name, fleet.Command{Delete: true}); err != nil {
			t.Fatal(err)
		}
	}
	for key, lasts := range keysOf(t, server) {
		if !isServerKey(key) && (!strings.HasSuffix(key, ":tombstone") || lasts == "-1") {
			t.Errorf("key %q remains for %s ms", key, lasts)
		}
	}
}

// TestStore_RollingUpgrade checks that clients with different programs and protocol
// versions can share a semaphore.
func TestStore_RollingUpgrade(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	old, young := openServer(t, server), openServer(t, server)
	young.program = assemble(func(part string) string { return part + "local anotherVersion = 2\n" })
	a := sessiontest.Begin(t, old, "db", protocol.Config{Capacity: 2})
	id, _, err := young.Open(ctx, "db", protocol.Config{Capacity: 2, TTL: sessiontest.TTL, Protocol: protocol.Version + 1}, sessiontest.Opener("young"))
	if err != nil {
		t.Fatal(err)
	}
	b := sessiontest.Opened(t, young, "db", id)
	for n := protocol.Ticket(1); n < 20; n++ {
		first, second := a.Granted(1, sessiontest.Acquire(n, 1))[0], b.Granted(1, sessiontest.Acquire(n, 1))[0]
		a.Send(sessiontest.Acquire(100+n, 2))
		b.Send(sessiontest.Release(second))
		a.Send(sessiontest.Release(first))
		a.Send(sessiontest.Release(a.LastLease()))
	}
	sessiontest.WantHeld(t, old, "db")
}

func TestStore_Warnings(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	want := func(texts ...string) {
		t.Helper()
		got := openAt(t, Options{Addresses: []string{primary.Address}, AllowEviction: true}).Warnings()
		if len(got) != len(texts) {
			t.Fatalf("%q, want %d", got, len(texts))
		}
		for i, text := range texts {
			if !strings.Contains(got[i], text) || !strings.Contains(got[i], primary.Address) {
				t.Errorf("%q, want %q", got[i], text)
			}
		}
	}
	want()
	redistest.Replica(t, primary)
	want("it has 1 replicas and min-replicas-to-write is 0")
	primary.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	want()
	primary.Must("CONFIG", "SET", "maxmemory", "100mb")
	primary.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	want("maxmemory-policy is allkeys-lru")
}

func TestOpen_RejectsEviction(t *testing.T) {
	t.Parallel()
	managed := redistest.Start(t, "--maxmemory-policy", "volatile-lru", "--maxmemory", "100mb")
	managed.Must("ACL", "SETUSER", "default", "-config")
	unlimited := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	for policy, server := range map[string]*redistest.Server{"volatile-lru": managed, "allkeys-lru": unlimited} {
		_, err := fleet.OpenStore(ctx, server.URL())
		if !errors.Is(err, fleet.FaultSettings) {
			t.Errorf("%s: %v", policy, err)
			continue
		}
		for _, part := range []string{server.Address, "maxmemory-policy is " + policy, "set maxmemory-policy to noeviction", "eviction=allow"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not contain %q", err, part)
			}
		}
		store, err := fleet.OpenStore(ctx, server.URL()+"?eviction=allow")
		if err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(store.(*Store).Warnings(), "\n"); !strings.Contains(warnings, policy) {
			t.Errorf("the warnings are %q", warnings)
		}
		store.Close()
	}
	unlimited.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	openServer(t, unlimited)
}

func TestSlot_MatchesTheCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Cluster(t, 1)[0]
	for _, tag := range []string{"sema:db", "sema:a*b", "", "123456789"} {
		if want := server.Must("CLUSTER", "KEYSLOT", "x{"+tag+"}"); tag != "" && fmt.Sprint(slot(tag)) != want {
			t.Errorf("slot of %q: %d, want %s as in the cluster", tag, slot(tag), want)
		}
	}
	for i := range slots {
		if slot(tagOf(i)) != i {
			t.Fatalf("tag %q is not in slot %d", tagOf(i), i)
		}
	}
}

// TestServerOf_MovesOnlyToANewServer checks that adding a server moves semaphores only to
// that server.
func TestServerOf_MovesOnlyToANewServer(t *testing.T) {
	t.Parallel()
	three := &Store{servers: []*server{{address: "a"}, {address: "b"}, {address: "c"}}}
	four := &Store{servers: append([]*server{{address: "d"}}, three.servers...)}
	count := map[string]int{}
	for i := range 4000 {
		name := fmt.Sprint("semaphore", i)
		before, after := three.serverOf(name).address, four.serverOf(name).address
		if before != after && after != "d" {
			t.Fatalf("%s moves from %s to %s", name, before, after)
		}
		count[after]++
	}
	for address, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 4000 are on %s", n, address)
		}
	}
}
