package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
)

// usage describes the load of the server by all its clients.
type usage struct {
	release          string
	number           int // of the version: 150004 is 15.4
	pooled           bool
	connections, max int
	oldest           time.Duration // the longest time for which a transaction has been idle; it keeps its locks
}

func queryUsage(ctx context.Context, c *pgx.Conn) (u usage, err error) {
	if u.pooled, err = behindPooler(ctx, c); err != nil {
		return u, err
	}
	var oldest float64
	err = c.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int,
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
		coalesce((SELECT extract(epoch FROM max(clock_timestamp() - state_change)) FROM pg_stat_activity
			WHERE state LIKE 'idle in transaction%' AND datname = current_database()), 0)::float8`,
		pgx.QueryExecModeExec).Scan(&u.release, &u.number, &u.connections, &u.max, &oldest)
	u.oldest = time.Duration(oldest * float64(time.Second))
	return u, err
}

// oldestSupported is the oldest major version that has all features that are used.
const oldestSupported = 13

func (u usage) versionFinding() fleet.Finding {
	f := fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: "PostgreSQL " + u.release}
	if u.number < oldestSupported*10_000 {
		f.Level, f.Advice = fleet.LevelProblem, fmt.Sprintf("upgrade it to %d or later", oldestSupported)
	}
	return f
}

// connectionsFinding returns the finding about free connections.
func (u usage) connectionsFinding() fleet.Finding {
	f := fleet.Finding{Check: "connections", Level: fleet.LevelOK, Seen: fmt.Sprintf("%d of %d in use", u.connections, u.max)}
	if u.connections > u.max/10*9 {
		f.Level, f.Advice = fleet.LevelWarning, "new connections may be rejected; raise max_connections, or lower pool_max_conns in the URLs"
	}
	return f
}

// transactionsFinding returns the finding about transactions that are left open. One that
// has locked the row of a semaphore stops that semaphore. Each of them keeps vacuum from
// removing obsolete row versions.
func (u usage) transactionsFinding() fleet.Finding {
	const long = 10 * time.Second
	if u.oldest < long {
		return fleet.Finding{Check: "transactions", Level: fleet.LevelOK, Seen: "none is left open"}
	}
	return fleet.Finding{Check: "transactions", Level: fleet.LevelWarning,
		Seen:   fmt.Sprintf("one has been idle for %v: it keeps vacuum from removing obsolete row versions, and holds its locks", u.oldest.Round(time.Second)),
		Advice: "look for \"idle in transaction\" in pg_stat_activity, and set idle_in_transaction_session_timeout"}
}
