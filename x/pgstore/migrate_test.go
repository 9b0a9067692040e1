package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

func TestOpen_MigratesOnceIfManyStartAtOnce(t *testing.T) {
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
	if n := count(t, openIn(t, schema, Options{}), "SELECT count(*) FROM "+schema+".schema_version"); n != 1 {
		t.Errorf("%d versions were created, want 1", n)
	}
}

func count(t testing.TB, s *Store, query string) (n int64) {
	t.Helper()
	if err := s.pool.QueryRow(ctx, query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrate_IsIdempotent(t *testing.T) {
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

func TestOpen_RejectsTablesOfANewerVersion(t *testing.T) {
	t.Parallel()
	s := openIn(t, newSchema(), Options{})
	exec(t, s, fmt.Sprintf("INSERT INTO %s.schema_version (version) VALUES (%d)", s.options.Schema, schemaVersion+1))
	url := pgtest.Shared.Server(t).URL()
	_, err := Open(ctx, url, Options{Schema: s.options.Schema})
	if err == nil || !strings.Contains(err.Error(), "newer program") || !strings.Contains(err.Error(), "upgrade this program") {
		t.Error(err)
	}
	if err := Migrate(ctx, url+"&sema_schema="+s.options.Schema); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Error(err)
	}
	// Open stores continue.
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

// TestOpen_RejectsTablesOfAnUnreleasedVersion checks that they are neither migrated nor
// changed, and that the error has advice.
func TestOpen_RejectsTablesOfAnUnreleasedVersion(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	for _, version := range []int{1, 2} {
		schema := newSchema()
		statements := fmt.Sprintf(`CREATE SCHEMA %[1]s; SET search_path = %[1]s;
			CREATE TABLE migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
			INSERT INTO migration SELECT generate_series(1, %[2]d);
			CREATE TABLE semaphore (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, hinted bigint NOT NULL DEFAULT 0);
			CREATE TABLE lease (semaphore bigint NOT NULL, seq bigint NOT NULL, meta text NOT NULL, PRIMARY KEY (semaphore, seq));
			INSERT INTO semaphore (name) VALUES ('jobs'); INSERT INTO lease VALUES (1, 1, 'nightly')`, schema, version)
		if out, err := server.Psql("postgres", statements); err != nil {
			t.Fatal(out)
		}
		_, opened := Open(ctx, server.URL(), Options{Schema: schema})
		_, unmigrated := Open(ctx, server.URL(), Options{Schema: schema, Unmigrated: true})
		migrated := Migrate(ctx, server.URL()+"&sema_schema="+schema)
		for what, err := range map[string]error{"Open": opened, "Open, Unmigrated": unmigrated, "Migrate": migrated} {
			if err == nil || !strings.Contains(err.Error(), "unreleased version of Sema") || !strings.Contains(err.Error(), "DROP SCHEMA \""+schema+"\" CASCADE") ||
				!strings.Contains(err.Error(), "sema_schema") {
				t.Errorf("version %d: %s: %v; want advice", version, what, err)
			}
		}
		tables := mustPsql(t, server, "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = '"+schema+"'::regnamespace")
		if kept := mustPsql(t, server, "SELECT meta FROM "+schema+".lease"); tables != "lease migration semaphore" || kept != "nightly" {
			t.Errorf("version %d: the schema has tables %s and %q", version, tables, kept)
		}
	}
}

// TestOpen_SharesASchemaWithAnotherProgram opens a schema that has a table migration of
// another program.
func TestOpen_SharesASchemaWithAnotherProgram(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	mustPsql(t, pgtest.Shared.Server(t), "CREATE SCHEMA "+schema+"; CREATE TABLE "+schema+".migration (id text)")
	s := openIn(t, schema, Options{})
	sessiontest.Begin(t, s, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

func TestOpen_CreatesNothingIfUnmigrated(t *testing.T) {
	t.Parallel()
	_, err := Open(ctx, pgtest.Shared.Server(t).URL(), Options{Schema: newSchema(), Unmigrated: true})
	if err == nil || !strings.Contains(err.Error(), "run sema migrate") {
		t.Error(err)
	}
}

// TestMigrate_ReportsMissingTables checks that a schema that lacks a table is not called up to date.
func TestMigrate_ReportsMissingTables(t *testing.T) {
	t.Parallel()
	const schema = "incomplete"
	server := pgtest.Shared.Server(t)
	s := openAt(t, server.URL(), Options{Schema: schema})
	if _, err := server.Psql("postgres", "DROP TABLE incomplete.tombstone"); err != nil {
		t.Fatal(err)
	}
	const lacks, advice = `schema "incomplete" has version 1, and lacks tombstone`, `DROP SCHEMA "incomplete" CASCADE`
	if err := Migrate(ctx, server.URL()+"&sema_schema="+schema); err == nil || !strings.Contains(err.Error(), lacks) || !strings.Contains(err.Error(), advice) {
		t.Errorf("migrate: %v, want %s, %s", err, lacks, advice)
	}
	found, err := s.Examine(ctx)
	if err != nil || !slices.ContainsFunc(found, func(f fleet.Finding) bool {
		return f.Check == "tables" && f.Level == fleet.LevelProblem && f.Seen == lacks && strings.Contains(f.Advice, advice)
	}) {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestMigrate_NeedsNoSuperuser uses a role that owns a schema, and one that only uses it.
func TestMigrate_NeedsNoSuperuser(t *testing.T) {
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
		t.Errorf("a role that may not create: %v", err)
	}
	if err := Migrate(ctx, server.URLOf(owner, "postgres").String()+"&sema_schema="+schema); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, server.URLOf(user, "postgres").String(), Options{Schema: schema})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "GRANT") {
		t.Errorf("a role that may not use the schema: %v", err)
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

func TestOpen_RejectsOtherIsolationLevels(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared.Server(t).URL() + "&default_transaction_isolation=serializable"
	_, err := Open(ctx, url, Options{Schema: newSchema()})
	if err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Error(err)
	}
}

func TestOpen_RejectsOtherEncodings(t *testing.T) {
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
