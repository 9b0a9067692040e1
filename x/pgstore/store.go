package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/notify"
)

// A Store keeps semaphores in a PostgreSQL database. Stores in any number of processes
// share the database.
type Store struct {
	pool    *pgxpool.Pool
	options Options
	address string // for messages
	calls   calls
	hub     *notify.Hub
	life    context.Context // ends with Close
	end     context.CancelFunc

	warnings []string
}

// Options configure the use of a database, apart from the connection to it.
type Options struct {
	// Schema is the schema of the tables; default "sema".
	Schema string
	// Prefix is put before the names of semaphores, so that clients can share a
	// schema and not their semaphores.
	Prefix string
	// Listen selects how notifications arrive: "auto" uses LISTEN, or polling if there
	// is a pooler in between; "poll" uses polling; the host:port of the server itself,
	// behind a pooler, uses LISTEN there. Default "auto".
	Listen string
	// Poll is the interval of polling; default 500ms.
	Poll time.Duration
	// Unmigrated makes Open fail where tables are missing or old, instead of creating
	// or migrating them.
	Unmigrated bool
	// Logger receives the texts of [Store.Warnings] when the store is opened; default
	// slog.Default.
	Logger *slog.Logger

	// replyWithin bounds an operation whose context has no earlier deadline; default
	// 10s. Opening the store may take six times as long.
	replyWithin time.Duration
}

func (o Options) withDefaults() Options {
	o.Schema = cmp.Or(o.Schema, "sema")
	o.Listen = cmp.Or(o.Listen, listenAuto)
	o.Poll = cmp.Or(o.Poll, 500*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.replyWithin = cmp.Or(o.replyWithin, 10*time.Second)
	return o
}

// Open connects to a database, by a URL or a string of settings as pgx takes
// them, and creates or migrates the tables.
func Open(ctx context.Context, database string, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, unparsable(err)
	}
	setUp(config)
	s := &Store{options: o, address: addressOf(&config.ConnConfig.Config), calls: newCalls(o.Schema)}
	s.hub = notify.NewHub(s.receive)
	s.life, s.end = context.WithCancel(context.Background())
	if err := s.connect(ctx, config, hasSetting(database, "default_query_exec_mode")); err != nil {
		return nil, err
	}
	return s, nil
}

// connect creates the pool. Behind a pooler that lends server connections by the
// transaction, a statement that was prepared on one is missing on the next, so none is
// prepared.
func (s *Store) connect(caller context.Context, config *pgxpool.Config, modeSet bool) error {
	ctx, cancel := s.bound(caller, 6*s.options.replyWithin)
	defer cancel()
	first, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return s.fault(ctx, err)
	}
	defer first.Close(context.WithoutCancel(ctx))
	if err := prepareSchema(ctx, first, s.options.Schema, !s.options.Unmigrated); err != nil {
		return s.fault(ctx, whyReadOnly(err, first.PgConn()))
	}
	if err := s.warn(ctx, first); err != nil {
		return s.fault(ctx, err)
	}
	if !modeSet {
		pooled, err := behindPooler(ctx, first)
		if err != nil {
			return s.fault(ctx, err)
		}
		if pooled {
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	}
	s.resetIfUnresponsive(config)
	if s.pool, err = pgxpool.NewWithConfig(caller, config); err != nil {
		return s.fault(ctx, err)
	}
	return nil
}

// behindPooler reports whether the connection goes through a pooler: the process id
// that a pooler gives its clients for cancelling is not that of the server process.
func behindPooler(ctx context.Context, c *pgx.Conn) (bool, error) {
	var pid uint32
	err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid != c.PgConn().PID(), err
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	var (
		problem string
		session *int64
		stored  []int64
	)
	missing, version := c.Check(), cmp.Or(c.Protocol, protocol.Version)
	if by.MustExist {
		missing = fs.ErrNotExist
	}
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem, &session, &stored) }, s.calls.open,
		s.options.Prefix+name, int16(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, int64(c.TTL), int64(c.Window), c.Numbered, c.Draining, int64(version),
		missing == nil, encodeText(by.Client.Instance), by.Client.Encode(), encodeKey(by.Owner.Key), encodeText(by.Owner.Principal), int64(by.Highest))
	switch {
	case err != nil:
		return 0, protocol.Config{}, err
	case problem == "missing":
		return 0, protocol.Config{}, about(name, missing)
	}
	config, err := decodeConfig(stored)
	switch {
	case err != nil:
		return 0, protocol.Config{}, about(name, err)
	case problem == "version":
		return 0, config, about(name, fmt.Errorf("%w: semaphore created with version %d, client has version %d (hint: upgrade one version at a time)", protocol.ErrVersion, config.Protocol, version))
	}
	return protocol.Session(*session), config, nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	var r row
	err := s.query(ctx, true, r.scan, s.calls.apply, encodeBatch(s.options.Prefix+name, b)...)
	if err != nil {
		return protocol.Reply{}, err
	}
	reply, err := r.reply()
	if err != nil {
		return protocol.Reply{}, about(name, err)
	}
	return reply, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	switch {
	case c.Configure != nil:
		return s.configure(ctx, name, *c.Configure)
	case c.Revoke != nil:
		return s.revoke(ctx, name, *c.Revoke)
	case c.Delete:
		return s.delete(ctx, name, c.DeleteVersion)
	}
	return nil
}

func (s *Store) configure(ctx context.Context, name string, c protocol.Config) error {
	var (
		problem       string
		version, made *int64
	)
	if invalid := c.Check(); invalid != nil { // a missing semaphore is reported first, and the semaphore's clocks advance
		if _, err := s.Inspect(ctx, name); err != nil {
			return err
		}
		return about(name, invalid)
	}
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem, &version, &made) }, s.calls.configure,
		s.options.Prefix+name, int16(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, int64(c.TTL), int64(c.Window), c.Numbered, c.Draining,
		int64(c.Version), int64(c.Protocol))
	if err != nil {
		return err
	}
	switch problem {
	case "missing":
		return about(name, fs.ErrNotExist)
	case "conflict":
		return about(name, conflict(*version, c.Version))
	case "fixed":
		return about(name, errors.New("kind, TTL, window and numbering are fixed when a semaphore is created"))
	case "protocol":
		return about(name, fmt.Errorf("protocol %d: want %d, or %d once no client uses an older version", c.Protocol, *made, *made+1))
	}
	return nil
}

func (s *Store) revoke(ctx context.Context, name string, r fleet.Revocation) error {
	var problem string
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem) }, s.calls.revoke,
		s.options.Prefix+name, int64(r.Lease), r.AtOnce, encodeText(r.Note()))
	switch {
	case err != nil:
		return err
	case problem == "missing":
		return about(name, fs.ErrNotExist)
	case problem == "lease":
		return about(name, fmt.Errorf("lease %d: %w", r.Lease, fs.ErrNotExist))
	}
	return nil
}

func (s *Store) delete(ctx context.Context, name string, expected uint64) error {
	var (
		problem string
		version *int64
	)
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem, &version) }, s.calls.remove, s.options.Prefix+name, int64(expected))
	switch {
	case err != nil:
		return err
	case problem == "missing":
		return about(name, fs.ErrNotExist)
	case problem == "conflict":
		return about(name, conflict(*version, expected))
	}
	return nil
}

// Close closes all connections.
func (s *Store) Close() error {
	s.end()
	s.hub.Close()
	s.pool.Close()
	return nil
}

// about adds the name of the semaphore to an error.
func about(name string, err error) error { return fmt.Errorf("semaphore %q: %w", name, err) }

func conflict(stored int64, expected uint64) error {
	return fmt.Errorf("%w: it has version %d, not %d", protocol.ErrConflict, uint64(stored), expected)
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
