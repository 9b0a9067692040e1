package etcdstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// listed returns the names that a store lists.
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

// summary returns the summary of a semaphore as a store lists it.
func summary(t *testing.T, store *Store, name string) protocol.Summary {
	t.Helper()
	page, err := store.List(ctx, protocol.ListQuery{Prefix: name, Limit: 1})
	if err != nil || len(page) != 1 || page[0].Name != name {
		t.Fatalf("%+v, %v", page, err)
	}
	return page[0]
}

func TestList_PagesAreInTheOrderOfBytes(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "p/")
	for _, prefix := range []string{"p", "p/head", "o/", "q/"} {
		sessiontest.Begin(t, openAt(t, server, prefix), "other", protocol.Config{Capacity: 1})
	}
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("%c%d~", 'A'+i*5, i%3)
		want = append(want, name)
		sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
	}
	slices.Sort(want)
	for limit := range 5 {
		var got []string
		for q := (protocol.ListQuery{Limit: limit}); ; q.After = got[len(got)-1] {
			before := store.counts.transactions.Load()
			page := listed(t, store, q)
			if store.counts.transactions.Load() != before {
				t.Error("a list used transactions")
			}
			if got = append(got, page...); len(page) < q.Most() || len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}

// TestList_TimePasses checks that capacity rises and rates are free again though nothing is
// written.
func TestList_TimePasses(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store, later := openAt(t, server, ""), openAt(t, server, "")
	sessiontest.Begin(t, store, "ramp", protocol.Config{Capacity: 10, Ramp: 10})
	config := summary(t, store, "ramp").Config
	config.Capacity = 100_000
	if err := store.Administer(ctx, "ramp", fleet.Command{Configure: &config}); err != nil {
		t.Fatal(err)
	}
	rate := sessiontest.Begin(t, store, "rate", protocol.Config{Kind: protocol.Rate, Capacity: 9, Window: 3600e6})
	rate.Granted(1, sessiontest.Acquire(1, 4))
	if got := summary(t, store, "rate"); got.InUse != 4 {
		t.Errorf("%d in use, want 4", got.InUse)
	}
	at := protocol.Micros(0)
	later.clock.wall = func() protocol.Micros { return at }
	changed := protocol.Micros(time.Now().UnixMicro())
	for _, c := range []struct {
		at               protocol.Micros
		least, most, use int64
	}{
		{0, 10, 10, 4}, // a clock that is behind
		{changed + 1000e6, 10_010, 10_020 + 10*60, 4},
		{changed + 3700e6, 37_010, 37_020 + 10*60, 0},
		{changed + 100_000e6, 100_000, 100_000, 0},
	} {
		at = c.at
		if got := summary(t, later, "ramp").Effective; got < c.least || got > c.most {
			t.Errorf("%d permits, want %d to %d", got, c.least, c.most)
		}
		if got := summary(t, later, "rate").InUse; got != c.use {
			t.Errorf("%d in use, want %d", got, c.use)
		}
	}
}
