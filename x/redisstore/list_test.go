package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// listed returns the names of a list.
func listed(t *testing.T, store *Store, q protocol.ListQuery) (names []string) {
	t.Helper()
	page, err := store.List(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range page {
		names = append(names, one.Name)
	}
	return names
}

func wantListed(t *testing.T, store *Store, q protocol.ListQuery, want ...string) {
	t.Helper()
	if got := listed(t, store, q); !slices.Equal(got, want) {
		t.Errorf("%+v lists %.300q, want %.300q", q, got, want)
	}
}

// servers has a store for each way to use several servers, or one.
func eachStore(t *testing.T, check func(t *testing.T, store *Store, servers []*redistest.Server)) {
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		check(t, openServer(t, server), []*redistest.Server{server})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		nodes := redistest.Cluster(t, 3)
		check(t, openAt(t, Options{Addresses: []string{nodes[0].Address}, Cluster: true}), nodes)
	})
	t.Run("shards", func(t *testing.T) {
		t.Parallel()
		servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
		check(t, openAt(t, Options{Addresses: []string{servers[0].Address, servers[1].Address, servers[2].Address}, Sharded: true}), servers)
	})
}

func TestStore_ListByPages(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store *Store, _ []*redistest.Server) {
		var all []string
		for i := range 25 {
			name := fmt.Sprintf("job-%02d", i)
			sessiontest.Begin(t, store, name, protocol.Config{Capacity: int64(i)})
			all = append(all, name)
		}
		for _, name := range []string{"a\xff", "a\xff\xff", "a\xffb", "b"} {
			sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		}
		q := protocol.ListQuery{Prefix: "job-", Limit: 10}
		for page := range slices.Chunk(all, 10) {
			wantListed(t, store, q, page...)
			q.After = page[len(page)-1]
		}
		wantListed(t, store, q)
		wantListed(t, store, protocol.ListQuery{Prefix: "a\xff"}, "a\xff", "a\xffb", "a\xff\xff")
		wantListed(t, store, protocol.ListQuery{Prefix: "a\xff\xff"}, "a\xff\xff")
		page, err := store.List(ctx, protocol.ListQuery{Prefix: "job-17"})
		if err != nil || len(page) != 1 || page[0].Config.Capacity != 17 || page[0].Effective != 17 || page[0].Sessions != 1 {
			t.Errorf("%+v, %v, want capacity 17 and one session", page, err)
		}
	})
}

// stale adds names to the index that have no semaphore, as of those that have expired.
func stale(servers []*redistest.Server, names ...string) {
	for _, server := range servers {
		for _, name := range names {
			server.Do("ZADD", "sema:names", "0", name) // another node of a cluster rejects it
		}
	}
}

func TestStore_ListSkipsExpiredSemaphores(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store *Store, servers []*redistest.Server) {
		for _, name := range []string{"b", "d", "f"} {
			sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		}
		stale(servers, "a", "a1", "a2", "a3", "c", "e", "g")
		wantListed(t, store, protocol.ListQuery{}, "b", "d", "f")
		wantListed(t, store, protocol.ListQuery{Limit: 2}, "b", "d")
		wantListed(t, store, protocol.ListQuery{Limit: 2, After: "d"}, "f")
		wantListed(t, store, protocol.ListQuery{Limit: 2, Prefix: "a"})
	})
}

// Semaphores that are created remove names of those that have expired: otherwise the
// index of a service with a semaphore for each of its users would only grow.
func TestStore_NamesOfExpiredSemaphoresAreRemoved(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store *Store, servers []*redistest.Server) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("old", i))
		}
		stale(servers, names...)
		left := func() (n int) {
			for _, server := range servers {
				found, _ := server.Do("ZRANGE", "sema:names", "0", "-1")
				n += strings.Count(found, "old")
			}
			return n
		}
		before := left()
		if before < 100 {
			t.Fatalf("%d stale names, want 100 and more", before)
		}
		for i := range 60 {
			sessiontest.Begin(t, store, fmt.Sprint("new", i), protocol.Config{Capacity: 1})
		}
		if after := left(); after > before-60 {
			t.Errorf("%d of %d stale names are left, after 60 semaphores were created", after, before)
		}
		if n := len(listed(t, store, protocol.ListQuery{Prefix: "new"})); n != 60 {
			t.Errorf("%d of 60 new semaphores are listed", n)
		}
	})
}

// An index that was lost has the semaphores that are opened again.
func TestStore_LostIndexIsWrittenAgain(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store *Store, servers []*redistest.Server) {
		sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1})
		for _, server := range servers {
			server.Do("DEL", "sema:names")
		}
		wantListed(t, store, protocol.ListQuery{})
		sessiontest.Begin(t, store, "db", protocol.Config{})
		wantListed(t, store, protocol.ListQuery{}, "db")
		if err := store.Administer(ctx, "db", fleet.Command{Delete: true}); err != nil {
			t.Fatal(err)
		}
		for _, server := range servers {
			if found, _ := server.Do("EXISTS", "sema:names"); found == "1" {
				t.Error("the name of a deleted semaphore is left")
			}
		}
	})
}

func TestStore_ListHasTheCapacityOfARamp(t *testing.T) {
	t.Parallel()
	store := openServer(t, redistest.Start(t))
	s := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1, Ramp: 1_000_000})
	config := protocol.Config{Capacity: protocol.MaxCapacity, Ramp: 1_000_000, TTL: sessiontest.TTL, Version: 1, Protocol: protocol.Version}
	if err := store.Administer(ctx, "db", fleet.Command{Configure: &config}); err != nil {
		t.Fatal(err)
	}
	summary := func() protocol.Summary {
		t.Helper()
		page, err := store.List(ctx, protocol.ListQuery{})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		return page[0]
	}
	first := summary().Effective
	time.Sleep(time.Millisecond)
	second := summary().Effective
	s.Say()
	snapshot, err := store.Inspect(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	// Both clocks are this machine's. One permit is a microsecond.
	if first < 1 || second < first+1000 || second > snapshot.Effective {
		t.Errorf("the capacity is %d, %d after a millisecond, and then %d", first, second, snapshot.Effective)
	}
}
