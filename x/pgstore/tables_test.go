package pgstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestViews_ShowWhatIsStored queries the views as an operator would, with psql.
func TestViews_ShowWhatIsStored(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, actingFor{store, "token:ci"}, "jobs", protocol.Config{Capacity: 3, MaxWaiters: 9})
	lease := s.Granted(1, sessiontest.Acquire(1, 2))[0]
	s.Send(sessiontest.Acquire(2, 2), sessiontest.Acquire(3, 1))
	by := sessiontest.Opener("worker")
	by.Client.Kind, by.Client.Host, by.Client.Process = "program", "alpha", 4711
	id, _, err := store.Open(ctx, "disks", protocol.Config{Capacity: 4, TTL: sessiontest.TTL, Numbered: true, MaxWaiters: protocol.NoWaiters}, by)
	if err != nil {
		t.Fatal(err)
	}
	d := sessiontest.Opened(t, store, "disks", id)
	d.Granted(1, protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 3, Details: &protocol.Details{Site: "main.go:44", Labels: "job=nightly shard=3"}})
	r := sessiontest.Begin(t, store, "mails", protocol.Config{Kind: protocol.Rate, Capacity: 5, Window: sessiontest.TTL})
	r.Granted(2, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 3))

	for query, want := range map[string]string{
		"SELECT name, kind, capacity, in_use, waiting, sessions, draining, ttl_seconds, window_seconds, ramp_per_second, max_waiters, numbered, version FROM semaphores": `disks|concurrency|4|3|0|1|f|15|0|0|-1|t|1
jobs|concurrency|3|2|2|1|f|15|0|0|9|f|1
mails|rate|5|4|0|1|f|15|15|0|0|f|1`,
		"SELECT semaphore, seq, instance, principal, weight, pooled, revoked, details FROM permits WHERE semaphore = 'jobs'": fmt.Sprintf("jobs|%d|instance of %s|token:ci|2|f|f|holder=\"for a test\"", lease, t.Name()),
		"SELECT instance, client, slots, details FROM permits WHERE semaphore = 'disks'":                                     `worker|kind=program host=alpha process=4711|0-2|site=main.go:44 labels="job=nightly shard=3"`,
		"SELECT semaphore, place, ticket, weight, instance, principal FROM waiters":                                          fmt.Sprintf("jobs|1|2|2|instance of %[1]s|token:ci\njobs|2|3|1|instance of %[1]s|token:ci", t.Name()),
		"SELECT semaphore, session, principal, permits, waiting FROM sessions":                                               fmt.Sprintf("disks|%d||1|0\njobs|%d|token:ci|1|2\nmails|%d||0|0", d.ID, s.ID, r.ID),
		// Times are timestamps of now.
		"SELECT abs(extract(epoch FROM now() - since)) < 60, abs(extract(epoch FROM now() - renewed)) < 60 FROM permits": "t|t\nt|t",
		"SELECT abs(extract(epoch FROM now() - changed)) < 60 FROM semaphores":                                           "t\nt\nt",
		"SELECT abs(extract(epoch FROM now() - since)) < 60 FROM waiters":                                                "t\nt",
	} {
		got, err := server.Psql("postgres", "SET search_path = "+store.options.Schema+"; "+query)
		if err != nil || got != want {
			t.Errorf("%s\n%v, got\n%s\nwant\n%s", query, err, got, want)
		}
	}
	s.Send()
}

// TestApply_UpdatesRowsInPlace applies many batches, and checks by the server's own
// statistics that the rows which each of them changes stay on their pages (HOT). With
// -args -pairs=1000000 it prints the figures for the report.
func TestApply_UpdatesRowsInPlace(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "autovacuum_naptime=10s")
	store := openAt(t, server.URL()+"&synchronous_commit=off", Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1000})
	var ops []protocol.Op
	ticket := protocol.Ticket(0)
	const each = 128
	for range *pairs / each {
		for range each {
			ticket++
			ops = append(ops, sessiontest.Acquire(ticket, 1))
		}
		held := s.Granted(each, ops...)
		ops = nil
		for _, l := range held {
			ops = append(ops, sessiontest.Release(l))
		}
	}
	s.Send(ops...)
	store.Close()
	waitFor(t, func() bool { // a backend reports its statistics before it ends
		return mustPsql(t, server, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()") == "0"
	})
	for _, table := range []string{"semaphore", "session"} {
		figures := statistics(t, server, table)
		t.Log(figures)
		var updated, hot, obsolete int64
		var size string
		if _, err := fmt.Sscanf(strings.ReplaceAll(figures[strings.Index(figures, "|")+1:], "|", " "), "%d %d %d %s", &updated, &hot, &obsolete, &size); err != nil {
			t.Fatal(err)
		}
		if updated < int64(*pairs/each) || hot < updated*95/100 {
			t.Errorf("%s: %d of %d updates were HOT, want 95 %%", table, hot, updated)
		}
		if obsolete > 200 {
			t.Errorf("%s has %d obsolete row versions, want few", table, obsolete)
		}
	}
	t.Log(statistics(t, server, "lease"))
	t.Log(statistics(t, server, "ticket"))
}

// statistics returns the counts of updates, HOT updates and obsolete row versions, the
// size with indexes and TOAST, and how often autovacuum ran.
func statistics(t *testing.T, server *pgtest.Server, table string) string {
	out, err := server.Psql("postgres", fmt.Sprintf(`SELECT relname, n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_size_pretty(pg_total_relation_size(relid)),
		n_tup_ins, n_tup_del, autovacuum_count FROM pg_stat_user_tables WHERE relname = '%s'`, table))
	if err != nil {
		t.Fatal(out)
	}
	return out
}
