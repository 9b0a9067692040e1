package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Warnings are what an operator should know: what keeps this server, or the
// standby that takes its place, from forgetting what was acknowledged is not set.
// They were found when the store was opened.
func (s *Store) Warnings() []string { return slices.Clone(s.warnings) }

// warn has the log tell what there is to know.
func (s *Store) warn(ctx context.Context, c *pgx.Conn) error {
	found, err := examine(ctx, c)
	if err != nil {
		return err
	}
	for _, text := range found {
		text = fmt.Sprintf("postgres at %s: %s", s.address, text)
		s.warnings = append(s.warnings, text)
		s.options.Logger.WarnContext(ctx, "sema: "+text)
	}
	return nil
}

// durability is what the server says of how well it remembers.
type durability struct {
	fsync, commit, names string
	standby, readOnly    bool
	standbys             int // that are connected to it
}

func examine(ctx context.Context, c *pgx.Conn) ([]string, error) {
	var d durability
	err := c.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
		pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', (SELECT count(*) FROM pg_stat_replication)`,
		pgx.QueryExecModeExec).Scan(&d.fsync, &d.commit, &d.names, &d.standby, &d.readOnly, &d.standbys)
	return d.warnings(), err
}

func (d durability) warnings() (found []string) {
	switch {
	case d.standby:
		return []string{"it is a standby, and refuses until it is promoted; name the primary, or all of them with target_session_attrs=read-write"}
	case d.readOnly:
		found = append(found, "default_transaction_read_only is on: every call is refused; set it to off")
	}
	if d.fsync == "off" {
		found = append(found, "fsync is off: after a crash of its machine it may have forgotten everything, or be damaged; set it to on")
	}
	if d.commit == "off" {
		found = append(found, "synchronous_commit is off: after a crash it has forgotten the last moments, and permits of then can be granted twice; set it to on")
	}
	awaited := d.awaited()
	switch {
	case d.standbys == 0:
	case awaited == 0:
		found = append(found, fmt.Sprintf("it has %d standbys and waits for none of them (synchronous_commit is %s, synchronous_standby_names %q): "+
			"one that is promoted has forgotten what it had not received, and permits of then can be granted twice; "+
			"name all that can be promoted in synchronous_standby_names, and set synchronous_commit to on", d.standbys, d.commit, d.names))
	case awaited < d.standbys:
		found = append(found, fmt.Sprintf("it has %d standbys and waits for %d of them (synchronous_standby_names is %q): "+
			"another that is promoted has forgotten what it had not received; promote only one that has all, or wait for all", d.standbys, awaited, d.names))
	}
	return found
}

// awaited is how many standbys have to have a commit on their disks before it is
// answered.
func (d durability) awaited() int {
	if d.names == "" || d.commit == "off" || d.commit == "local" || d.commit == "remote_write" {
		return 0
	}
	// FIRST 2 (a, b), ANY 2 (a, b), 2 (a, b), or only names, of which it is one.
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
