package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is what this program reads and writes. It rises with any change
// of the tables, which is a file in migrations, or of the functions, which are
// made anew.
const schemaVersion = 2

var (
	//go:embed migrations/*.sql
	migrations embed.FS

	//go:embed functions/*.sql
	functions embed.FS
)

// Migrate makes the tables and functions at a URL, as [Open] takes it, or brings
// them up to date. It needs the right to create a schema, or to create in the one
// that is there; those who only use them need neither:
//
//	GRANT USAGE ON SCHEMA sema TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sema TO app;
//
// Roles that only read need the views. The tables have the keys of sessions, with
// which batches can be sent for them:
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
		return unparsed(err)
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
	return nil
}

// prepareSchema looks whether the schema is the one this program knows, and makes
// or changes it if it may.
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
		return advise(err, "42501", fmt.Sprintf("have somebody who may create in the database run sema migrate, or make a schema for this user first: CREATE SCHEMA %s AUTHORIZATION …", pgx.Identifier{schema}.Sanitize()))
	case version > schemaVersion:
		return newer(schema, version)
	}
	return checkServer(ctx, c)
}

func newer(schema string, version int) error {
	return fmt.Errorf("schema %q was made by a newer program (it has version %d, this one knows %d); upgrade this program, or name another schema (sema_schema)", schema, version, schemaVersion)
}

// foundVersion is 0 if there is nothing yet.
func foundVersion(ctx context.Context, c interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, schema string) (version int, err error) {
	var there bool
	in := pgx.Identifier{schema}.Sanitize()
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", pgx.QueryExecModeExec, in+".migration").Scan(&there); err != nil || !there {
		return 0, advise(err, "42501", "GRANT USAGE ON SCHEMA "+in)
	}
	err = c.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+in+".migration", pgx.QueryExecModeExec).Scan(&version)
	return version, advise(err, "42501", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+in)
}

// checkServer refuses what cannot work, rather than working now and then.
func checkServer(ctx context.Context, c *pgx.Conn) error {
	var encoding, isolation string
	err := c.QueryRow(ctx, "SELECT current_setting('server_encoding'), current_setting('default_transaction_isolation')", pgx.QueryExecModeExec).Scan(&encoding, &isolation)
	switch {
	case err != nil:
		return err
	case encoding != "UTF8":
		return fmt.Errorf("the database has encoding %s; make one with UTF8 (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)", encoding)
	case isolation != "read committed":
		return fmt.Errorf("default_transaction_isolation is %q, in which callers who wait for each other fail; ALTER ROLE … SET default_transaction_isolation = 'read committed'", isolation)
	}
	return nil
}

// migrateSchema is for many who start at once: one does it, the others wait and
// find it done.
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
	// All who use a table wait behind ALTER TABLE, which waits for one transaction that
	// was left open.
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
	if err := makeSchema(ctx, tx, schema); err != nil {
		return err
	}
	if err := run(ctx, tx, "SET LOCAL search_path = "+in+", pg_temp; CREATE TABLE IF NOT EXISTS migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())"); err != nil {
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
	_, err = tx.Exec(ctx, "INSERT INTO migration (version) VALUES ($1)", pgx.QueryExecModeExec, schemaVersion)
	return err
}

// makeSchema asks for the right to create one only if there is none.
func makeSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", pgx.QueryExecModeExec, pgx.Identifier{schema}.Sanitize()).Scan(&there); err != nil || there {
		return err
	}
	return run(ctx, tx, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
}

// runFiles runs the files with names of a pattern, in order.
func runFiles(ctx context.Context, tx pgx.Tx, files embed.FS, pattern string) error {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no %s", pattern)
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

// advise adds what to do about an error with a code of PostgreSQL's.
func advise(err error, code, advice string) error {
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == code {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}
