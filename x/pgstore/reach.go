package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A host that has become unreachable is detected by timeouts alone. Holders rely on their
// leases for ten seconds by default. In that time all connections to the host must be
// closed, and the next host reached.
const (
	connectWithin = 2 * time.Second
	pingWithin    = time.Second
	longIdle      = time.Second // a connection that was idle for this long is pinged before it is used
)

// setUp sets the timeouts that the URL does not set, and the handler of notices.
func setUp(config *pgxpool.Config) {
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectWithin
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingWithin
	}
	config.ConnConfig.OnNotice = noteUnreplicated
}

// resetIfUnresponsive closes all connections of the pool if one does not reply to a ping.
// Otherwise each would be tried, one after the other.
func (s *Store) resetIfUnresponsive(config *pgxpool.Config) {
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
		return true // and the pool finds it closed
	}
}

// errUnreplicated means that a transaction is committed on the primary, but perhaps not on
// the synchronous standbys. An administrator cancelled the wait for them, and the server
// replied as if they had confirmed the commit.
var errUnreplicated = errors.New("the wait for a synchronous standby was cancelled")

// unreplicated is the key under which noteUnreplicated marks a connection.
const unreplicated = "sema.unreplicated"

func noteUnreplicated(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" { // the text is in the server's language
		c.CustomData()[unreplicated] = true
	}
}

// wasUnreplicated reports whether the next primary may lack the commit of the last reply
// on a connection, and clears the mark.
func wasUnreplicated(c *pgconn.PgConn) bool {
	noted := c.CustomData()[unreplicated] != nil
	delete(c.CustomData(), unreplicated)
	return noted
}
