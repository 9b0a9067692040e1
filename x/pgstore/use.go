package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
)

// A use is how the server is used, by whomever.
type use struct {
	release          string
	number           int // 150004
	pooled           bool
	connections, max int
	oldest           time.Duration // how long a transaction has done nothing, and keeps what it has locked
}

func askUse(ctx context.Context, c *pgx.Conn) (u use, err error) {
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

// oldestTested is the first version that has all that is used.
const oldestTested = 13

func (u use) version() fleet.Finding {
	f := fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: "PostgreSQL " + u.release}
	if u.number < oldestTested*10_000 {
		f.Level, f.Advice = fleet.LevelProblem, fmt.Sprintf("upgrade it to %d or later", oldestTested)
	}
	return f
}

// room is whether others can still connect.
func (u use) room() fleet.Finding {
	f := fleet.Finding{Check: "connections", Level: fleet.LevelOK, Seen: fmt.Sprintf("%d of %d in use", u.connections, u.max)}
	if u.connections > u.max/10*9 {
		f.Level, f.Advice = fleet.LevelWarning, "who comes next may be refused; raise max_connections, or lower pool_max_conns in the URLs"
	}
	return f
}

// idle is about transactions that are left open. One that has locked the row of a
// semaphore stops it, and all keep dead rows from being cleared away.
func (u use) idle() fleet.Finding {
	const long = 10 * time.Second
	if u.oldest < long {
		return fleet.Finding{Check: "transactions", Level: fleet.LevelOK, Seen: "none is left open"}
	}
	return fleet.Finding{Check: "transactions", Level: fleet.LevelWarning,
		Seen:   fmt.Sprintf("one has been idle for %v: it keeps dead rows, and any row that it has locked", u.oldest.Round(time.Second)),
		Advice: "look for \"idle in transaction\" in pg_stat_activity, and set idle_in_transaction_session_timeout"}
}
