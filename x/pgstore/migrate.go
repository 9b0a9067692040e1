package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is the version of the tables and functions that this program uses. It
// rises with each change: of the tables, which is a file in migrations, or of the
// functions, which are replaced as a whole.
const schemaVersion = 1

var (
	//go:embed migrations/*.sql
	migrations embed.FS

	//go:embed functions/*.sql
	functions embed.FS
)

// Migrate creates the tables and functions at a URL, as [Open] takes it, or migrates
// them to this version. Its role needs the right to create a schema, or to create in
// an existing one. Roles that only use the tables need neither:
//
//	GRANT USAGE ON SCHEMA sema TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sema TO app;
//
// Grant only the views to roles that only read. The tables have the keys of sessions,
// with which batches can be sent for them:
//
//	GRANT USAGE ON SCHEMA sema TO reader;
//	GRANT SELECT ON sema.semaphores, sema.permits, sema.waiters, sema.sessions TO reader;
func Migrate(ctx context.Context, database string) error {
	u, err := url.Parse(database)
	if err != nil {
		return invalid("the URL cannot be parsed")
	}
	connection, o, err := parse(u)
	if err != nil {
		return err
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(connection)
	if err != nil {
		return unparsable(err)
	}
	setUp(config)
	s := &Store{options: o, address: addressOf(&config.ConnConfig.Config), life: context.Background()}
	ctx, cancel := s.bound(ctx, 6*o.replyWithin)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return s.fault(ctx, err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	if err := prepareSchema(ctx, c, o.Schema, true); err != nil {
		return s.fault(ctx, whyReadOnly(err, c.PgConn()))
	}
	missing, err := missingTables(ctx, c, o.Schema)
	if err != nil {
		return s.fault(ctx, err)
	}
	if len(missing) > 0 {
		return s.fault(ctx, fmt.Errorf("%s; %s", incomplete(o.Schema, missing), completion(o.Schema)))
	}
	return nil
}

// relations are the tables and views of a schema.
var relations = []string{"semaphore", "session", "lease", "ticket", "spending", "tombstone", "semaphores", "permits", "waiters", "sessions"}

// missingTables returns the tables and views that a schema lacks, although it has a version: they
// were dropped, or a restore was incomplete.
func missingTables(ctx context.Context, c interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, schema string) ([]string, error) {
	in := pgx.Identifier{schema}.Sanitize() + "."
	rows, err := c.Query(ctx, "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass($2 || name) IS NULL", pgx.QueryExecModeExec, relations, in)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func incomplete(schema string, missing []string) string {
	return fmt.Sprintf("schema %q has version %d, and lacks %s", schema, schemaVersion, strings.Join(missing, ", "))
}

// completion returns the advice for a schema that lacks tables.
func completion(schema string) string {
	return fmt.Sprintf("stop all programs for one TTL, delete the schema (DROP SCHEMA %s CASCADE), and run sema migrate", pgx.Identifier{schema}.Sanitize())
}

// prepareSchema checks that the schema has the version of this program. If migrate is set,
// it creates or migrates the schema.
func prepareSchema(ctx context.Context, c *pgx.Conn, schema string, migrate bool) error {
	version, err := foundVersion(ctx, c, schema)
	switch {
	case err != nil:
		return err
	case version == 0 && !migrate:
		return fmt.Errorf("schema %q has no tables of Sema (version %d); run sema migrate, which creates them", schema, schemaVersion)
	case version < schemaVersion && !migrate:
		return fmt.Errorf("schema %q has version %d, this program needs %d; run sema migrate when all programs that use it are of this version", schema, version, schemaVersion)
	case version < schemaVersion:
		err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return migrateSchema(ctx, tx, schema) })
		return advise(err, "42501", fmt.Sprintf("run sema migrate as a role that may create in the database, or create a schema for this one: CREATE SCHEMA %s AUTHORIZATION …", pgx.Identifier{schema}.Sanitize()))
	case version > schemaVersion:
		return newer(schema, version)
	}
	return checkServer(ctx, c)
}

func newer(schema string, version int) error {
	return fmt.Errorf("schema %q was created by a newer program (it has version %d, this one knows %d); upgrade this program, or name another schema (sema_schema)", schema, version, schemaVersion)
}

func unreleased(schema string) error {
	return fmt.Errorf("schema %q was created by an unreleased version of Sema; delete it (DROP SCHEMA %s CASCADE) when no program uses it, or name another schema (sema_schema)",
		schema, pgx.Identifier{schema}.Sanitize())
}

// foundVersion returns the version of the tables, 0 if there are none. Table
// schema_version has it; unreleased versions of Sema had table migration.
func foundVersion(ctx context.Context, c interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, schema string) (version int, err error) {
	var exists, old bool
	in := pgx.Identifier{schema}.Sanitize()
	err = c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL AND to_regclass($3) IS NOT NULL", pgx.QueryExecModeExec,
		in+".schema_version", in+".migration", in+".semaphore").Scan(&exists, &old)
	switch {
	case err != nil:
		return 0, advise(err, "42501", "GRANT USAGE ON SCHEMA "+in)
	case exists:
		err = c.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+in+".schema_version", pgx.QueryExecModeExec).Scan(&version)
		return version, advise(err, "42501", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+in)
	case old:
		return 0, unreleased(schema)
	}
	return 0, nil
}

// checkServer rejects settings with which some operations would fail.
func checkServer(ctx context.Context, c *pgx.Conn) error {
	var encoding, isolation string
	err := c.QueryRow(ctx, "SELECT current_setting('server_encoding'), current_setting('default_transaction_isolation')", pgx.QueryExecModeExec).Scan(&encoding, &isolation)
	switch {
	case err != nil:
		return err
	case encoding != "UTF8":
		return fmt.Errorf("the database has encoding %s; create one with UTF8 (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)", encoding)
	case isolation != "read committed":
		return fmt.Errorf("default_transaction_isolation is %q, in which concurrent batches fail; ALTER ROLE … SET default_transaction_isolation = 'read committed'", isolation)
	}
	return nil
}

// migrateSchema creates or migrates the tables, under a lock: of many programs that
// start at once one does it, the others wait and find it done.
func migrateSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	in := pgx.Identifier{schema}.Sanitize()
	key := fnv.New64a()
	key.Write([]byte("sema migrate " + schema))
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", pgx.QueryExecModeExec, int64(key.Sum64())); err != nil {
		return err
	}
	if err := checkServer(ctx, tx.Conn()); err != nil {
		return err
	}
	// All users of a table wait behind ALTER TABLE, which itself may wait for a
	// transaction that was left open.
	if err := run(ctx, tx, "SELECT set_config('lock_timeout', '10s', true) WHERE current_setting('lock_timeout') = '0'"); err != nil {
		return err
	}
	version, err := foundVersion(ctx, tx, schema)
	switch {
	case err != nil || version == schemaVersion:
		return err
	case version > schemaVersion:
		return newer(schema, version)
	}
	if err := createSchema(ctx, tx, schema); err != nil {
		return err
	}
	if err := run(ctx, tx, "SET LOCAL search_path = "+in+", pg_temp; CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, created timestamptz NOT NULL DEFAULT clock_timestamp())"); err != nil {
		return err
	}
	for next := version + 1; next <= schemaVersion; next++ {
		if err := runFiles(ctx, tx, migrations, fmt.Sprintf("migrations/%04d_*.sql", next)); err != nil {
			return err
		}
	}
	if err := runFiles(ctx, tx, functions, "functions/*.sql"); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO schema_version (version) VALUES ($1)", pgx.QueryExecModeExec, schemaVersion)
	return err
}

// createSchema creates the schema unless it exists. No right is needed if it does.
func createSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", pgx.QueryExecModeExec, pgx.Identifier{schema}.Sanitize()).Scan(&exists); err != nil || exists {
		return err
	}
	return run(ctx, tx, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
}

// runFiles runs the files that match a pattern, in the order of names.
func runFiles(ctx context.Context, tx pgx.Tx, files embed.FS, pattern string) error {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("no file matches %s", pattern)
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := run(ctx, tx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// run runs several statements.
func run(ctx context.Context, tx pgx.Tx, statements string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, statements).ReadAll()
	return err
}

// advise adds advice to an error that has this code of PostgreSQL.
func advise(err error, code, advice string) error {
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == code {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}
