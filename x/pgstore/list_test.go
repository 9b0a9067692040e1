package pgstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// createMany creates semaphores without the round trips of opening each.
func createMany(t *testing.T, s *Store, names string) {
	t.Helper()
	sessiontest.Begin(t, s, "template", protocol.Config{Capacity: 5})
	exec(t, s, fmt.Sprintf(`INSERT INTO %[1]s.semaphore (name, kind, capacity, whole, ramp, max_waiters, ttl, period, numbered, draining, version, protocol, ramp_from, ramp_at, last, last_session, last_seq)
		SELECT n, kind, capacity, whole, ramp, max_waiters, ttl, period, numbered, draining, version, protocol, ramp_from, ramp_at, last, last_session, last_seq
		FROM %[1]s.semaphore, (%[2]s) x(n) WHERE name = 'template'`, s.options.Schema, names))
}

func TestStore_ListsPageByPage(t *testing.T) {
	t.Parallel()
	s := openIn(t, newSchema(), Options{})
	createMany(t, s, "SELECT 'n' || lpad(i::text, 5, '0') FROM generate_series(1, 2500) i")
	var names []string
	for q := (protocol.ListQuery{Prefix: "n"}); ; q.After = names[len(names)-1] {
		page, err := s.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			names = append(names, one.Name)
		}
		if len(page) < q.Most() {
			break
		}
	}
	if len(names) != 2500 {
		t.Errorf("listed %d, want 2500", len(names))
	}
	for i, name := range names {
		if want := fmt.Sprintf("n%05d", i+1); name != want {
			t.Fatalf("name %d is %q, want %q", i, name, want)
		}
	}
}

// TestStore_ListReadsOnePage checks that a list reads the rows that it returns, by the
// index, however many others there are. That holds also for a generic plan, and for
// servers before version 15, which do not use the index for starts_with.
func TestStore_ListReadsOnePage(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgtest.Shared.Server(t).URL()+"&pool_max_conns=1&plan_cache_mode=force_generic_plan", Options{Schema: newSchema()})
	createMany(t, s, "SELECT c || '-' || i FROM generate_series(1, 2000) i, unnest('{a,b,c}'::text[]) c")
	exec(t, s, "VACUUM ANALYZE "+s.options.Schema+".semaphore")
	for _, q := range []protocol.ListQuery{
		{Limit: 10}, {Prefix: "b", Limit: 10}, {Prefix: "b", After: "b-1500", Limit: 10}, {Prefix: "a-1999"}, {Prefix: "a-1", After: "a-2"}, {Prefix: "none"},
	} {
		if _, err := s.List(ctx, q); err != nil { // reads the catalogue and makes the plan
			t.Fatal(err)
		}
		before := touched(t, s, "semaphore")
		if _, err := s.List(ctx, q); err != nil {
			t.Fatal(err)
		}
		if pages := touched(t, s, "semaphore") - before; pages > 30 {
			t.Errorf("%+v read %d pages of some hundred, want the few with the rows", q, pages)
		}
	}
}

// TestStore_ListChangesNothing lists where nothing can be changed. The capacity in the
// list rises with time all the same.
func TestStore_ListChangesNothing(t *testing.T) {
	t.Parallel()
	s, begin := openClocked(t).(clocked), time.Now()
	s.SetClock(begin)
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 10, Ramp: 2})
	snapshot, err := s.Inspect(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Config.Capacity = 100
	if err := s.Administer(ctx, "a", fleet.Command{Configure: &snapshot.Config}); err != nil {
		t.Fatal(err)
	}
	stored := func() (row string) {
		if err := s.pool.QueryRow(ctx, "SELECT xmin::text || x::text FROM "+s.options.Schema+".semaphore x").Scan(&row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	before := stored()
	reader := openAt(t, pgtest.Shared.URL(t)+"&default_transaction_read_only=on", Options{Schema: s.options.Schema, Prefix: s.options.Prefix})
	for after, want := range map[time.Duration]int64{0: 10, time.Second: 12, 10500 * time.Millisecond: 31, time.Hour: 100, -time.Minute: 10} {
		s.SetClock(begin.Add(after))
		page, err := reader.List(ctx, protocol.ListQuery{})
		if err != nil || len(page) != 1 || page[0].Effective != want || page[0].Config.Capacity != 100 {
			t.Errorf("after %v: %+v, %v; want a capacity of %d", after, page, err, want)
		}
	}
	if now := stored(); now != before {
		t.Errorf("the row was %s, and is %s", before, now)
	}
}

// TestStore_ListTakesAnyText checks that queries with texts that PostgreSQL rejects have
// results as others have.
func TestStore_ListTakesAnyText(t *testing.T) {
	t.Parallel()
	s := openIn(t, newSchema(), Options{Prefix: "p:"})
	for _, name := range []string{"a", "b", "z~"} {
		sessiontest.Begin(t, s, name, protocol.Config{Capacity: 1})
	}
	sessiontest.Begin(t, openIn(t, s.options.Schema, Options{Prefix: "p;"}), "other", protocol.Config{Capacity: 1})
	for q, want := range map[protocol.ListQuery]string{
		{}:                                  "a b z~",
		{Prefix: "\x00"}:                    "",
		{Prefix: "a\xff"}:                   "",
		{Prefix: "é"}:                       "",
		{Prefix: "z~"}:                      "z~",
		{After: "a\x00"}:                    "b z~",
		{After: "a\xff"}:                    "b z~",
		{After: "aé"}:                       "b z~",
		{After: "\x00"}:                     "a b z~",
		{After: "z\xff"}:                    "",
		{After: "\uFFFD"}:                   "",
		{After: "%"}:                        "a b z~",
		{After: strings.Repeat("a", 10000)}: "b z~",
	} {
		page, err := s.List(ctx, q)
		var names []string
		for _, one := range page {
			names = append(names, one.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%+v lists %s, %v; want %s", q, got, err, want)
		}
	}
}
