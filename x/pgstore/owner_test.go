package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// actingFor is a store as a server uses it, which has authenticated a principal.
type actingFor struct {
	*Store
	principal string
}

func (a actingFor) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	by.Owner.Principal = a.principal
	return a.Store.Open(ctx, name, c, by)
}

func (a actingFor) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	b.Owner.Principal = a.principal
	return a.Store.Apply(ctx, name, b)
}

// A role that may read the views sees principals and no keys.
func TestViews_HaveNoKeys(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, actingFor{store, "token:ci"}, "jobs", protocol.Config{Capacity: 1})
	s.Granted(1, sessiontest.Acquire(1, 1))
	s.Say(sessiontest.Acquire(2, 1))
	in := store.options.Schema
	reader := in + "_reader"
	for _, statement := range []string{
		"CREATE ROLE " + reader + " LOGIN", "GRANT USAGE ON SCHEMA " + in + " TO " + reader,
		fmt.Sprintf("GRANT SELECT ON %[1]s.semaphores, %[1]s.permits, %[1]s.waiters, %[1]s.sessions TO %[2]s", in, reader),
	} {
		ask(t, server, statement)
	}
	c, err := pgx.Connect(ctx, server.URLOf(reader, "postgres").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, view := range []string{"semaphores", "permits", "waiters", "sessions"} {
		var row string
		if err := c.QueryRow(ctx, "SELECT row_to_json(x) FROM "+in+"."+view+" x").Scan(&row); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(row, "-", ""), sessiontest.Owner.Key.Hex()) {
			t.Errorf("%s shows the key: %s", view, row)
		}
		if view != "semaphores" && !strings.Contains(row, `"principal":"token:ci"`) {
			t.Errorf("%s does not show the principal: %s", view, row)
		}
	}
	for _, statement := range []string{"SELECT key FROM " + in + ".session", "SELECT " + in + ".inspect('jobs')"} {
		if _, err := c.Exec(ctx, statement); codeOf(err) != "42501" {
			t.Errorf("%s: %v, want permission denied", statement, err)
		}
	}
}

// What sessions of the first version of the tables hold stays held until they expire,
// and nobody can use them.
func TestMigrate_SessionsWithoutAnOwnerExpire(t *testing.T) {
	t.Parallel()
	schema := newGuestSchema(t)
	makeFirstVersion(t, schema)
	store := openAt(t, pgtest.Shared.URL(t), Options{Schema: schema})
	if n := count(t, store, "SELECT count(*) FROM pg_proc WHERE proname = 'turn' AND pronamespace = '"+schema+"'::regnamespace"); n != 1 {
		t.Errorf("there are %d functions turn, want that of the earlier version gone", n)
	}
	for _, owner := range []protocol.Owner{{}, sessiontest.Owner} {
		r, err := store.Apply(ctx, "jobs", protocol.Batch{Session: 7, Owner: owner, Seq: 2, Ops: []protocol.Op{sessiontest.Release(9)}})
		if err != nil || r.Status != protocol.Unknown {
			t.Errorf("%+v, %v; want the reply for an unknown session", r, err)
		}
	}
	s := sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 1})
	s.Granted(0, sessiontest.Acquire(1, 1))
	exec(t, store, "UPDATE "+schema+".semaphore SET clock = clock + ttl + 1")
	exec(t, store, "UPDATE "+schema+".session SET deadline = deadline + $2 WHERE id = $1", int64(s.ID), int64(sessiontest.TTL))
	s.Granted(1)
	if err := checkSums(store); err != nil {
		t.Error(err)
	}
}

// makeFirstVersion makes the tables of version 1, with a session that holds the only
// permit and one that tries to acquire it.
func makeFirstVersion(t *testing.T, schema string) {
	t.Helper()
	c, err := pgx.Connect(ctx, pgtest.Shared.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	now, ttl := time.Now().UnixMicro(), int64(sessiontest.TTL)
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		return errors.Join(
			run(ctx, tx, "CREATE SCHEMA "+schema+"; SET LOCAL search_path = "+schema+"; CREATE TABLE migration (version integer PRIMARY KEY); INSERT INTO migration VALUES (1)"),
			runFiles(ctx, tx, migrations, "migrations/0001_*.sql"),
			run(ctx, tx, fmt.Sprintf(`CREATE FUNCTION turn(text, bigint, bigint, bigint, boolean, smallint[], bigint[], bigint[], bigint[], bigint[], boolean[], boolean[], text[],
					bigint[], integer[], boolean, bigint, bigint, boolean) RETURNS void LANGUAGE sql AS '';
				INSERT INTO semaphore (name, kind, capacity, whole, ramp, max_waiters, ttl, period, draining, version, protocol, ramp_from, ramp_at, last, last_session, last_seq,
					renewals, in_use, leases, sessions, waiting, wanted, last_place) VALUES ('jobs', 0, 1, 0, 0, 0, %[2]d, 0, false, 1, 1, 1, %[1]d, %[1]d, 8, 9, 2, 1, 1, 2, 1, 1, 1);
				INSERT INTO session (semaphore, id, instance, deadline, seen, renewal, waiting, tries) VALUES (1, 7, 'holder', %[2]d, %[1]d, 1, 0, 0), (1, 8, 'tries', %[2]d, %[1]d, 2, 1, 1);
				INSERT INTO lease (semaphore, seq, session, weight, since, pooled, meta) VALUES (1, 9, 7, 1, %[1]d, false, '');
				INSERT INTO ticket (semaphore, place, session, id, weight, least, until, since, try, pooled, meta) VALUES (1, 1, 8, 1, 1, 1, %[2]d * 7 / 6, %[1]d, true, false, '')`,
				now, ttl)))
	})
	if err != nil {
		t.Fatal(err)
	}
}
