package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
)

// Warnings returns the problems that were found when the store was opened: settings with
// which this server, or a standby that is promoted, may lose acknowledged commits.
func (s *Store) Warnings() []string { return slices.Clone(s.warnings) }

// warn logs the problems of the server and keeps them for Warnings.
func (s *Store) warn(ctx context.Context, c *pgx.Conn) error {
	d, err := queryDurability(ctx, c)
	if err != nil {
		return err
	}
	s.warnings = fleet.Problems("postgres at "+s.address, d.findings())
	for _, text := range s.warnings {
		s.options.Logger.WarnContext(ctx, "sema: "+text)
	}
	return nil
}

// Ping implements [fleet.Examiner].
func (s *Store) Ping(ctx context.Context) (now time.Time, err error) {
	err = s.query(ctx, true, func(row pgx.Row) error { return row.Scan(&now) }, "SELECT clock_timestamp()")
	return now, err
}

// Examine implements [fleet.Examiner].
func (s *Store) Examine(ctx context.Context) ([]fleet.Finding, error) {
	ctx, cancel := s.bound(ctx, s.options.replyWithin)
	defer cancel()
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	defer c.Release()
	d, err := queryDurability(ctx, c.Conn())
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	u, err := queryUsage(ctx, c.Conn())
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	tables, err := foundVersion(ctx, c, s.options.Schema)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	schema := fleet.Finding{Check: "tables", Level: fleet.LevelOK, Seen: fmt.Sprintf("schema %q has version %d, as this program needs", s.options.Schema, tables)}
	if missing, err := missingTables(ctx, c, s.options.Schema); err != nil {
		return nil, s.fault(ctx, err)
	} else if len(missing) > 0 {
		schema = fleet.Finding{Check: "tables", Level: fleet.LevelProblem, Seen: incomplete(s.options.Schema, missing), Advice: completion(s.options.Schema)}
	}
	all := []fleet.Finding{u.versionFinding(), schema}
	all = append(all, d.findings()...)
	return append(all, s.poolerFinding(u), u.connectionsFinding(), u.transactionsFinding()), nil
}

func (s *Store) poolerFinding(u usage) fleet.Finding {
	f := fleet.Finding{Check: "pooler", Level: fleet.LevelOK, Seen: "none: LISTEN works, notifications arrive at once"}
	switch {
	case !u.pooled && s.options.Listen == listenPoll:
		f.Level = fleet.LevelWarning
		f.Seen = fmt.Sprintf("none, but sema_listen=poll: a waiter is notified of its permit up to %v late", s.options.Poll)
		f.Advice = "leave sema_listen out of the URL"
	case u.pooled && (s.options.Listen == listenAuto || s.options.Listen == listenPoll):
		f.Level = fleet.LevelWarning
		f.Seen = fmt.Sprintf("there is a pooler, such as PgBouncer, in front of the server, through which LISTEN is not possible: a waiter is notified of its permit up to %v late", s.options.Poll)
		f.Advice = "name the server itself, sema_listen=host:port, or connect to it directly"
	case u.pooled:
		f.Seen = fmt.Sprintf("there is one; notifications arrive from %s at once", s.options.Listen)
	}
	return f
}

// durability holds the settings and the state that decide whether the server keeps the
// commits that it has acknowledged.
type durability struct {
	fsync, commit, names string
	standby, readOnly    bool
	standbys             int // that are connected to it
}

func queryDurability(ctx context.Context, c *pgx.Conn) (d durability, err error) {
	err = c.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
		pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', (SELECT count(*) FROM pg_stat_replication)`,
		pgx.QueryExecModeExec).Scan(&d.fsync, &d.commit, &d.names, &d.standby, &d.readOnly, &d.standbys)
	return d, err
}

func (d durability) findings() (found []fleet.Finding) {
	problem := func(check, seen, advice string) {
		found = append(found, fleet.Finding{Check: check, Level: fleet.LevelProblem, Seen: seen, Advice: advice})
	}
	fine := func(check, seen string) {
		found = append(found, fleet.Finding{Check: check, Level: fleet.LevelOK, Seen: seen})
	}
	switch {
	case d.standby:
		problem("role", "it is a standby, and rejects all changes until it is promoted", "name the primary, or all servers with target_session_attrs=read-write")
		return found
	case d.readOnly:
		problem("role", "default_transaction_read_only is on: every operation is rejected", "set it to off")
	default:
		fine("role", "primary")
	}
	if d.fsync == "off" {
		problem("persistence", "fsync is off: a crash of its machine may lose all data, or damage it", "set it to on")
	}
	if d.commit == "off" {
		problem("persistence", "synchronous_commit is off: a crash loses the last commits, and permits of that time can be granted twice", "set it to on")
	}
	if d.fsync != "off" && d.commit != "off" {
		fine("persistence", fmt.Sprintf("fsync %s, synchronous_commit %s", d.fsync, d.commit))
	}
	awaited := d.awaited()
	switch {
	case d.standbys == 0:
		fine("replication", "it has no standbys: there is nothing to fail over to")
	case awaited == 0:
		problem("replication", fmt.Sprintf("it has %d standbys and waits for none of them (synchronous_commit is %s, synchronous_standby_names %q): "+
			"one that is promoted lacks what it had not received, and permits of that time can be granted twice", d.standbys, d.commit, d.names),
			"name all standbys that can be promoted in synchronous_standby_names, and set synchronous_commit to on")
	case awaited < d.standbys:
		problem("replication", fmt.Sprintf("it has %d standbys and waits for %d of them (synchronous_standby_names is %q): "+
			"another that is promoted lacks what it had not received", d.standbys, awaited, d.names), "promote only a standby that has all commits, or wait for all")
	default:
		fine("replication", fmt.Sprintf("%d standbys, and it waits for %d of them", d.standbys, awaited))
	}
	return found
}

// awaited returns how many standbys must have a commit on their disks before the server
// replies.
func (d durability) awaited() int {
	if d.names == "" || d.commit == "off" || d.commit == "local" || d.commit == "remote_write" {
		return 0
	}
	// FIRST 2 (a, b), ANY 2 (a, b), 2 (a, b), or only names, which means one of them.
	how, _, several := strings.Cut(d.names, "(")
	fields := strings.Fields(how)
	if !several || len(fields) == 0 {
		return 1
	}
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 1
	}
	return n
}
