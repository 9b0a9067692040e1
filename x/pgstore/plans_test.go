package pgstore

import (
	"fmt"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestApply_CostIgnoresDeletedLeases checks that deleted leases that autovacuum has not
// removed do not slow down later batches, however many leases there were when the server
// made its plans.
func TestApply_CostIgnoresDeletedLeases(t *testing.T) {
	t.Parallel()
	const few, many = 2, 1000
	for _, planned := range []int{1, 300, many, 3 * many, 6 * many} {
		schema := newSchema()
		before := pairsBy(t, openAlone(t, schema), many)
		for left := planned; left > 0; left -= many {
			before(1, min(left, many))
		}
		pairs := pairsBy(t, openAlone(t, schema), many)
		pairs(1, few)
		first := pairs(20, few)
		pairs(20, many)
		if last := pairs(20, few); last > 2*first+20 {
			t.Errorf("planned for %d: a batch touched %d pages at first, and %d in the end", planned, first, last)
		}
	}
}

// pairsBy returns a function that acquires n permits at a time and releases them. The
// function returns how many pages of table lease were read for that, each time.
func pairsBy(t *testing.T, store *Store, capacity int64) func(times int64, n int) (each int64) {
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: capacity})
	return func(times int64, n int) (each int64) {
		t.Helper()
		before := touched(t, store, "lease")
		for range times {
			var acquires, releases []protocol.Op
			for i := range n {
				acquires = append(acquires, sessiontest.Acquire(protocol.Ticket(i+1), 1))
			}
			for _, l := range s.Granted(n, acquires...) {
				releases = append(releases, sessiontest.Release(l))
			}
			s.Send(releases...)
		}
		return (touched(t, store, "lease") - before) / times
	}
}

// TestApply_CostIgnoresOtherSessions checks that a hand-over costs the same however many
// sessions were opened since the server made its plans.
func TestApply_CostIgnoresOtherSessions(t *testing.T) {
	t.Parallel()
	store := openAlone(t, newSchema())
	r := newRelay(t, store, "a")
	ticket := protocol.Ticket(0)
	hand := func() (each int64) {
		const times = 20
		before := touched(t, store, "session")
		for range times {
			ticket++
			r.handOver(ticket, func() {})
		}
		return (touched(t, store, "session") - before) / times
	}
	hand()
	alone := hand()
	for i := range 1000 {
		if _, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener(fmt.Sprint("other ", i))); err != nil {
			t.Fatal(err)
		}
	}
	if among := hand(); among > 2*alone+20 { // the index is a level higher
		t.Errorf("a hand-over touched %d pages among two, and %d among a thousand", alone, among)
	}
}

// TestStore_SettlesByIndex checks that a settlement finds its grant by an index, and that
// a batch reads no spending that it does not change, however much there is and was.
func TestStore_SettlesByIndex(t *testing.T) {
	t.Parallel()
	store := openAlone(t, newSchema())
	s := sessiontest.Begin(t, store, "a", protocol.Config{Kind: protocol.Rate, Capacity: 1 << 30, Window: 20 * sessiontest.TTL})
	grant := func(n int) []protocol.Seq {
		var ops []protocol.Op
		for i := range n {
			ops = append(ops, sessiontest.Acquire(protocol.Ticket(i+1), 1))
		}
		return s.Granted(n, ops...)
	}
	batch := func() (pages int64) {
		const times = 20
		leases := grant(times)
		before := touched(t, store, "spending")
		for _, lease := range leases {
			s.Send(protocol.Op{Verb: protocol.Settle, Lease: lease, Least: 1, Weight: 2}, sessiontest.Acquire(1, 1))
		}
		return (touched(t, store, "spending") - before) / times
	}
	batch()
	few := batch()
	for range 10 {
		grant(1000)
	}
	if many := batch(); many > 2*few+10 {
		t.Errorf("a batch touched %d pages among %d grants, and %d among ten thousand", few, 100, many)
	}
	// The grants leave the window, and autovacuum does not remove their rows.
	exec(t, store, "UPDATE "+store.options.Schema+".spending SET until = 0")
	s.Send()
	if n := count(t, store, "SELECT count(*) FROM "+store.options.Schema+".spending"); n != 0 {
		t.Fatalf("%d grants are left, want none", n)
	}
	if after := batch(); after > 2*few+10 {
		t.Errorf("a batch touched %d pages at first, and %d after ten thousand grants have left the window", few, after)
	}
}

// openAlone opens a store with one connection, so that all statements use the plans of
// that connection.
func openAlone(t *testing.T, schema string) *Store {
	return openAt(t, pgtest.Shared.Server(t).URL()+"&pool_max_conns=1", Options{Schema: schema})
}

// touched returns how many pages of a table and its indexes were read so far.
func touched(t testing.TB, s *Store, table string) int64 {
	t.Helper()
	exec(t, s, "SELECT pg_stat_force_next_flush()") // when this statement ends
	return count(t, s, fmt.Sprintf(`SELECT coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)::bigint
		FROM pg_statio_user_tables WHERE schemaname = '%s' AND relname = '%s'`, s.options.Schema, table))
}
