package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// listed returns the names that List returns.
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

// A listing is a store of one or several servers, with its own prefix.
type listing struct {
	*Store
	servers []*redistest.Server
	index   string // key of the index
}

// stale adds names without a semaphore to the index, as expired semaphores leave them.
func (l listing) stale(names ...string) {
	for _, server := range l.servers {
		for _, name := range names {
			server.Do("ZADD", l.index, "0", name) // the other nodes of a cluster reject it
		}
	}
}

// indexed returns the number of names in the index that contain a text.
func (l listing) indexed(text string) (n int) {
	for _, server := range l.servers {
		found, _ := server.Do("ZRANGE", l.index, "0", "-1")
		n += strings.Count(found, text)
	}
	return n
}

func TestStore_List(t *testing.T) {
	t.Parallel()
	start := func(n int) (servers []*redistest.Server, addresses []string) {
		for range n {
			servers = append(servers, redistest.Start(t))
			addresses = append(addresses, servers[len(servers)-1].Address)
		}
		return servers, addresses
	}
	one, oneAddress := start(1)
	shards, shardAddresses := start(3)
	nodes := redistest.Cluster(t, 3)
	for _, kind := range []struct {
		name    string
		servers []*redistest.Server
		options Options
	}{
		{"server", one, Options{Addresses: oneAddress}},
		{"shards", shards, Options{Addresses: shardAddresses, Sharded: true}},
		{"cluster", nodes, Options{Addresses: []string{nodes[0].Address}, Cluster: true}},
	} {
		for what, check := range map[string]func(*testing.T, listing){
			"pages": listPages, "expired semaphores are skipped": listSkipsExpired,
			"names of expired semaphores are removed": listRemovesExpired, "a lost index is restored": listIsRestored,
		} {
			t.Run(kind.name+": "+what, func(t *testing.T) {
				o := kind.options
				o.Prefix = strings.ReplaceAll(what, " ", "-") + ":"
				check(t, listing{openAt(t, o), kind.servers, o.Prefix + "names"})
			})
		}
	}
}

func listPages(t *testing.T, l listing) {
	var all []string
	for i := range 25 {
		name := fmt.Sprintf("job-%02d", i)
		sessiontest.Begin(t, l, name, protocol.Config{Capacity: int64(i)})
		all = append(all, name)
	}
	for _, name := range []string{"a\xff", "a\xff\xff", "a\xffb", "b"} {
		sessiontest.Begin(t, l, name, protocol.Config{Capacity: 1})
	}
	q := protocol.ListQuery{Prefix: "job-", Limit: 10}
	for page := range slices.Chunk(all, 10) {
		wantListed(t, l.Store, q, page...)
		q.After = page[len(page)-1]
	}
	wantListed(t, l.Store, q)
	wantListed(t, l.Store, protocol.ListQuery{Prefix: "a\xff"}, "a\xff", "a\xffb", "a\xff\xff")
	wantListed(t, l.Store, protocol.ListQuery{Prefix: "a\xff\xff"}, "a\xff\xff")
	wantListed(t, l.Store, protocol.ListQuery{Prefix: "b"}, "b")
	wantListed(t, l.Store, protocol.ListQuery{Prefix: "b", After: "b"})
	page, err := l.List(ctx, protocol.ListQuery{Prefix: "job-17"})
	if err != nil || len(page) != 1 || page[0].Config.Capacity != 17 || page[0].Effective != 17 || page[0].Sessions != 1 {
		t.Errorf("%+v, %v, want capacity 17 and one session", page, err)
	}
}

func listSkipsExpired(t *testing.T, l listing) {
	for _, name := range []string{"b", "d", "f"} {
		sessiontest.Begin(t, l, name, protocol.Config{Capacity: 1})
	}
	l.stale("a", "a1", "a2", "a3", "c", "e", "g")
	wantListed(t, l.Store, protocol.ListQuery{}, "b", "d", "f")
	wantListed(t, l.Store, protocol.ListQuery{Limit: 2}, "b", "d")
	wantListed(t, l.Store, protocol.ListQuery{Limit: 2, After: "d"}, "f")
	wantListed(t, l.Store, protocol.ListQuery{Limit: 2, Prefix: "a"})
}

// TestStore_ListOfShards checks that a semaphore with outdated copies on other servers is
// listed once, from the server that clients use.
func TestStore_ListOfShards(t *testing.T) {
	t.Parallel()
	var addresses []string
	for i := range 3 {
		server := redistest.Start(t)
		addresses = append(addresses, server.Address)
		sessiontest.Begin(t, openServer(t, server), "moved", protocol.Config{Capacity: int64(i)})
	}
	store := openAt(t, Options{Addresses: addresses, Sharded: true})
	page, err := store.List(ctx, protocol.ListQuery{})
	if err != nil || len(page) != 1 {
		t.Fatalf("%+v, %v, want one semaphore", page, err)
	}
	if snapshot, err := store.Inspect(ctx, "moved"); err != nil || page[0].Config != snapshot.Config {
		t.Errorf("listed with %+v, inspected with %+v, %v", page[0].Config, snapshot.Config, err)
	}
}

// listRemovesExpired checks that creating semaphores removes the names of expired ones.
// Otherwise the index of a service with a semaphore for each of its users would only grow.
func listRemovesExpired(t *testing.T, l listing) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("old", i))
	}
	l.stale(names...)
	before := l.indexed("old")
	if before < 100 {
		t.Fatalf("%d stale names, want 100 and more", before)
	}
	for i := range 60 {
		sessiontest.Begin(t, l, fmt.Sprint("new", i), protocol.Config{Capacity: 1})
	}
	if after := l.indexed("old"); after > before-60 {
		t.Errorf("%d of %d stale names remain after 60 semaphores were created", after, before)
	}
	if n := len(listed(t, l.Store, protocol.ListQuery{Prefix: "new"})); n != 60 {
		t.Errorf("%d of 60 new semaphores are listed", n)
	}
}

// listIsRestored checks that after the index was lost, a semaphore is listed once it is
// opened again.
func listIsRestored(t *testing.T, l listing) {
	sessiontest.Begin(t, l, "db", protocol.Config{Capacity: 1})
	for _, server := range l.servers {
		server.Do("DEL", l.index)
	}
	wantListed(t, l.Store, protocol.ListQuery{})
	sessiontest.Begin(t, l, "db", protocol.Config{})
	wantListed(t, l.Store, protocol.ListQuery{}, "db")
	if err := l.Administer(ctx, "db", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	if l.indexed("db") > 0 {
		t.Error("the name of a deleted semaphore remains")
	}
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
	s.Send()
	snapshot, err := store.Inspect(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	// Both clocks are this machine's. The capacity rises by one each microsecond.
	if first < 1 || second < first+1000 || second > snapshot.Effective {
		t.Errorf("the capacity is %d, %d after a millisecond, and then %d", first, second, snapshot.Effective)
	}
}
