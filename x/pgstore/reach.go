package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A host that is gone without a word is found out by waiting. Holders trust in
// their leases for ten seconds unless told otherwise. In that time all connections
// to it have to be given up, and the next host reached.
const (
	connectWithin = 2 * time.Second
	pingWithin    = time.Second
	longIdle      = time.Second // after which a connection is tried before it is used
)

// setUp has connections be as the store needs them, where the URL does not say.
func setUp(config *pgxpool.Config) {
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectWithin
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingWithin
	}
	config.ConnConfig.OnNotice = noteUnreplicated
}

// resetIfSilent gives up all connections if one does not answer: the others would
// be tried one after the other.
func (s *Store) resetIfSilent(config *pgxpool.Config) {
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration < longIdle {
			return false
		}
		within, cancel := context.WithTimeout(ctx, config.PingTimeout)
		defer cancel()
		if p.Conn.Ping(within) == nil {
			return false
		}
		if ctx.Err() == nil {
			s.pool.Reset()
		}
		return true // which finds it closed
	}
}

// errUnreplicated is for what was committed, but not by the standbys that it has
// to be: somebody has cancelled the wait for them, and the server goes on as if
// they had.
var errUnreplicated = errors.New("the wait for a synchronous standby was cancelled")

// unreplicated is where a connection notes that.
const unreplicated = "sema.unreplicated"

func noteUnreplicated(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" { // the text is in the server's language
		c.CustomData()[unreplicated] = true
	}
}

// wasUnreplicated reports whether the last answer on a connection is one that the
// next primary may not know of, and forgets it.
func wasUnreplicated(c *pgconn.PgConn) bool {
	noted := c.CustomData()[unreplicated] != nil
	delete(c.CustomData(), unreplicated)
	return noted
}
