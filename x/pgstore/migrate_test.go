package pgstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	url := pgtest.Shared.Server(t).URL()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := Open(ctx, url, Options{Schema: schema})
			if err != nil {
				t.Errorf("process %d: %v", i, err)
				return
			}
			defer s.Close()
			if _, _, err := s.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener("i")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(t, openIn(t, schema, Options{}), "SELECT count(*) FROM "+schema+".migration"); n != 1 {
		t.Errorf("there were %d migrations, want 1", n)
	}
}

func count(t testing.TB, s *Store, query string) (n int64) {
	t.Helper()
	if err := s.pool.QueryRow(ctx, query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrateAgainChangesNothing(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	url := pgtest.Shared.Server(t).URL() + "&pool_max_conns=3&sema_schema=" + schema
	for range 2 {
		if err := Migrate(ctx, url); err != nil {
			t.Fatal(err)
		}
	}
	s := openIn(t, schema, Options{Unmigrated: true})
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

func TestTablesFromTheFutureAreRefused(t *testing.T) {
	t.Parallel()
	s := openIn(t, newSchema(), Options{})
	exec(t, s, fmt.Sprintf("INSERT INTO %s.migration (version) VALUES (%d)", s.options.Schema, schemaVersion+1))
	url := pgtest.Shared.Server(t).URL()
	_, err := Open(ctx, url, Options{Schema: s.options.Schema})
	if err == nil || !strings.Contains(err.Error(), "newer program") || !strings.Contains(err.Error(), "upgrade this program") {
		t.Error(err)
	}
	if err := Migrate(ctx, url+"&sema_schema="+s.options.Schema); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Error(err)
	}
	// Those who are at work go on.
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

func TestNothingIsMadeIfNotToldTo(t *testing.T) {
	t.Parallel()
	_, err := Open(ctx, pgtest.Shared.Server(t).URL(), Options{Schema: newSchema(), Unmigrated: true})
	if err == nil || !strings.Contains(err.Error(), "run sema migrate") {
		t.Error(err)
	}
}

// TestNoSuperuserIsNeeded has a role that owns a schema, and one that only uses it.
func TestNoSuperuserIsNeeded(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	schema := newSchema()
	owner, user := schema+"_owner", schema+"_user"
	for _, statement := range []string{
		"CREATE ROLE " + owner + " LOGIN", "CREATE ROLE " + user + " LOGIN", "CREATE SCHEMA " + schema + " AUTHORIZATION " + owner,
	} {
		if out, err := server.Psql("postgres", statement); err != nil {
			t.Fatal(out)
		}
	}
	_, err := Open(ctx, server.URLOf(user, "postgres").String(), Options{Schema: newSchema()})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "run sema migrate") {
		t.Errorf("one who may not create: %v", err)
	}
	if err := Migrate(ctx, server.URLOf(owner, "postgres").String()+"&sema_schema="+schema); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, server.URLOf(user, "postgres").String(), Options{Schema: schema})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "GRANT") {
		t.Errorf("one who may not use: %v", err)
	}
	for _, grant := range []string{
		"GRANT USAGE ON SCHEMA " + schema + " TO " + user, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema + " TO " + user,
	} {
		if out, err := server.Psql("postgres", grant); err != nil {
			t.Fatal(out)
		}
	}
	s := openAt(t, server.URLOf(user, "postgres").String(), Options{Schema: schema})
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

func TestAnIsolationThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared.Server(t).URL() + "&default_transaction_isolation=serializable"
	_, err := Open(ctx, url, Options{Schema: newSchema()})
	if err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Error(err)
	}
}

func TestAnEncodingThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	name := newSchema()
	if out, err := server.Psql("postgres", "CREATE DATABASE "+name+" ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"); err != nil {
		t.Fatal(out)
	}
	_, err := Open(ctx, server.URLOf("postgres", name).String(), Options{})
	if err == nil || !strings.Contains(err.Error(), "UTF8") {
		t.Error(err)
	}
}
