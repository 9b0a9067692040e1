package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/hints"
)

// A Store is the use of a database by one client. Stores in any number of
// processes share it.
type Store struct {
	pool    *pgxpool.Pool
	options Options
	address string // for people
	calls   calls
	hub     *hints.Hub
	life    context.Context // until Close
	end     context.CancelFunc

	warnings []string
}

// Options are how a database is used, besides how it is reached.
type Options struct {
	// Schema is where the tables are; "sema" unless told.
	Schema string
	// Prefix is put before the names of semaphores, so that clients can share a
	// schema and not their semaphores.
	Prefix string
	// Listen is how hints are heard: "auto" by LISTEN, or by looking again and
	// again if there is a pooler in between; "poll" by looking; or the host:port
	// of the server itself, behind the pooler, for LISTEN.
	Listen string
	// Poll is how often to look where there is no LISTEN; half a second unless
	// told.
	Poll time.Duration
	// Unmigrated has Open fail where tables are missing or old, instead of making
	// them.
	Unmigrated bool
	// Logger is told of what [Store.Warnings] has, when the store is opened;
	// slog.Default unless told.
	Logger *slog.Logger

	// replyWithin bounds an operation whose context has no earlier deadline; default
	// 10s. To open the store may take six times as long.
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
// them, and makes the tables or brings them up to date.
func Open(ctx context.Context, database string, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, unparsed(err)
	}
	setUp(config)
	s := &Store{options: o, address: addressOf(&config.ConnConfig.Config), calls: newCalls(o.Schema)}
	s.hub = hints.NewHub(s.hear)
	s.life, s.end = context.WithCancel(context.Background())
	if err := s.connect(ctx, config, asked(database, "default_query_exec_mode")); err != nil {
		return nil, err
	}
	return s, nil
}

// connect makes the pool. Behind a pooler that lends server connections by the
// transaction, what is prepared on one is not there on the next: so nothing is.
func (s *Store) connect(caller context.Context, config *pgxpool.Config, modeAsked bool) error {
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
	if !modeAsked {
		pooled, err := behindPooler(ctx, first)
		if err != nil {
			return s.fault(ctx, err)
		}
		if pooled {
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	}
	s.resetIfSilent(config)
	if s.pool, err = pgxpool.NewWithConfig(caller, config); err != nil {
		return s.fault(ctx, err)
	}
	return nil
}

// behindPooler reports whether there is somebody between here and the server: the
// number that a pooler gives its clients to cancel by is not the server's.
func behindPooler(ctx context.Context, c *pgx.Conn) (bool, error) {
	var pid uint32
	err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid != c.PgConn().PID(), err
}

// Open is for [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	var (
		problem string
		session *int64
		stored  []int64
	)
	invalid := c.Check()
	version := cmp.Or(c.Protocol, protocol.Version)
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem, &session, &stored) }, s.calls.open,
		s.options.Prefix+name, encodeText(by.Instance), int16(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, int64(c.TTL), int64(c.Window),
		c.Draining, int64(version), invalid == nil, encodeKey(by.Owner.Key), encodeText(by.Owner.Principal), int64(by.Highest))
	switch {
	case err != nil:
		return 0, protocol.Config{}, err
	case problem == "missing":
		return 0, protocol.Config{}, about(name, invalid)
	}
	config, err := decodeConfig(stored)
	switch {
	case err != nil:
		return 0, protocol.Config{}, about(name, err)
	case problem == "version":
		return 0, config, about(name, fmt.Errorf("%w: the semaphore was made by version %d, this is version %d", protocol.ErrVersion, config.Protocol, version))
	}
	return protocol.Session(*session), config, nil
}

// Apply is for [fleet.Store].
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

// Inspect is for [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	var found []byte
	err := s.query(ctx, true, func(row pgx.Row) error { return row.Scan(&found) }, s.calls.inspect, s.options.Prefix+name)
	switch {
	case err != nil:
		return protocol.Snapshot{}, err
	case found == nil:
		return protocol.Snapshot{}, about(name, fs.ErrNotExist)
	}
	snapshot, err := decodeSnapshot(found)
	if err != nil {
		return protocol.Snapshot{}, about(name, err)
	}
	return snapshot, nil
}

// decodeSnapshot reads what inspect says.
func decodeSnapshot(text []byte) (protocol.Snapshot, error) {
	read := struct {
		protocol.Snapshot
		Config   []int64
		Sessions []struct {
			protocol.SessionInfo
			Key, Principal string
		}
		Line []struct {
			protocol.TicketInfo
			Ticket int64 // which clients choose, so that all bits may be set
		}
	}{}
	if err := json.Unmarshal(text, &read); err != nil {
		return protocol.Snapshot{}, err
	}
	snapshot := read.Snapshot
	var err error
	if snapshot.Config, err = decodeConfig(read.Config); err != nil {
		return snapshot, err
	}
	for _, r := range read.Sessions {
		key, err := protocol.ParseKey(r.Key)
		if err != nil {
			return snapshot, err
		}
		r.Instance, r.Owner = decodeText(r.Instance), protocol.Owner{Key: key, Principal: decodeText(r.Principal)}
		snapshot.Sessions = append(snapshot.Sessions, r.SessionInfo)
	}
	for i := range snapshot.Leases {
		snapshot.Leases[i].Meta = decodeText(snapshot.Leases[i].Meta)
	}
	for _, t := range read.Line {
		t.TicketInfo.Ticket, t.Meta = protocol.Ticket(t.Ticket), decodeText(t.Meta)
		snapshot.Queue = append(snapshot.Queue, t.TicketInfo)
	}
	return snapshot, nil
}

// Administer is for [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	switch {
	case c.Configure != nil:
		return s.configure(ctx, name, *c.Configure)
	case c.Revoke != nil:
		return s.revoke(ctx, name, *c.Revoke)
	case c.Delete:
		var there bool
		err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&there) }, s.calls.remove, s.options.Prefix+name)
		if err == nil && !there {
			err = about(name, fs.ErrNotExist)
		}
		return err
	}
	return nil
}

func (s *Store) configure(ctx context.Context, name string, c protocol.Config) error {
	var (
		problem       string
		version, made *int64
	)
	invalid := c.Check()
	if invalid != nil { // and yet time passes, and whether it is there counts first
		if _, err := s.Inspect(ctx, name); err != nil {
			return err
		}
		return about(name, invalid)
	}
	err := s.query(ctx, false, func(row pgx.Row) error { return row.Scan(&problem, &version, &made) }, s.calls.configure,
		s.options.Prefix+name, int16(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, int64(c.TTL), int64(c.Window), c.Draining,
		int64(c.Version), int64(c.Protocol))
	if err != nil {
		return err
	}
	switch problem {
	case "missing":
		return about(name, fs.ErrNotExist)
	case "conflict":
		return about(name, fmt.Errorf("%w: it has version %d, not %d", protocol.ErrConflict, *version, c.Version))
	case "fixed":
		return about(name, errors.New("kind, TTL and window are fixed when a semaphore is made"))
	case "protocol":
		return about(name, fmt.Errorf("protocol %d: it is %d, and can be raised by one, once nobody uses an older one", c.Protocol, *made))
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

// List is for [fleet.Lister].
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := s.query(ctx, true, func(row pgx.Row) error { return row.Scan(&names) }, s.calls.list, s.options.Prefix+prefix)
	if err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = names[i][len(s.options.Prefix):]
	}
	return names, nil
}

// Close lets go of the database.
func (s *Store) Close() error {
	s.end()
	s.hub.Close()
	s.pool.Close()
	return nil
}

// about says which semaphore an error is about.
func about(name string, err error) error { return fmt.Errorf("semaphore %q: %w", name, err) }

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Lister   = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
