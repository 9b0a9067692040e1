package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sema-go/sema"
)

// calls holds the SQL statements. Each is one round trip and a transaction of its own.
type calls struct{ open, apply, inspect, configure, revoke, remove, list, pending, channels string }

func newCalls(schema string) calls {
	in := pgx.Identifier{schema}.Sanitize()
	call := func(function string, parameters int) string {
		places := make([]string, parameters)
		for i := range places {
			places[i] = fmt.Sprintf("$%d", i+1)
		}
		return fmt.Sprintf("SELECT * FROM %s.%s(%s)", in, function, strings.Join(places, ", "))
	}
	return calls{
		open: call("open_session", 17), apply: call("apply_batch", 22), inspect: call("inspect", 1), configure: call("configure", 12),
		revoke: call("revoke_lease", 4), remove: call("delete_semaphore", 2), list: call("list_semaphores", 4),
		pending:  fmt.Sprintf("SELECT i, n.* FROM unnest($1::text[]) i, %s.pending_notifications(i) n", in),
		channels: fmt.Sprintf("SELECT i, %s.channel(i) FROM unnest($1::text[]) i", in),
	}
}

// attempts is the maximum number of times that a statement is sent.
const attempts = 3

// query executes a statement that returns one row, as do does.
func (s *Store) query(caller context.Context, repeatable bool, scan func(pgx.Row) error, call string, arguments ...any) error {
	return s.do(caller, repeatable, func(ctx context.Context, c *pgx.Conn) error { return scan(c.QueryRow(ctx, call, arguments...)) })
}

// do runs a function on a connection. It runs the function again at once if the server
// has certainly not executed the statement. A repeatable statement is also sent again if
// the server may have executed it.
func (s *Store) do(caller context.Context, repeatable bool, run func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := s.bound(caller, s.options.replyWithin)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.try(ctx, run)
		if err == nil {
			return nil
		}
		again := undone(err) || repeatable && cutOff(err)
		if isReadOnly(err) {
			s.pool.Reset() // by now another server may be the primary, and have the same name
			again = attempt == 1
		}
		if !again || attempt == attempts || ctx.Err() != nil {
			return s.fault(ctx, err)
		}
	}
}

// try makes one attempt. If ctx expires after pingWithin or longer without a reply, the
// server may be unreachable. Then the other connections of the pool are useless too, and
// the pool is reset. The connection itself is hijacked from the pool, which would keep a
// place for it during an orderly close.
func (s *Store) try(ctx context.Context, run func(context.Context, *pgx.Conn) error) error {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	err = run(ctx, c.Conn())
	if c.Conn().IsClosed() && errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= pingWithin {
		c.Hijack()
		s.pool.Reset()
		return err
	}
	defer c.Release()
	if wasUnreplicated(c.Conn().PgConn()) && err == nil {
		return errUnreplicated
	}
	return whyReadOnly(err, c.Conn().PgConn())
}

// bound returns a context that ends within a duration even if the caller's does not: a
// server that has become unreachable never replies.
func (s *Store) bound(caller context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if end, bounded := caller.Deadline(); bounded && time.Until(end) <= within {
		return caller, func() {}
	}
	noReply := fmt.Errorf("%w: no reply from postgres at %s within %v; it may still execute the operation (hint: check the network, and look for locks in pg_stat_activity)",
		sema.ErrUnavailable, s.address, within)
	return context.WithTimeoutCause(caller, within, noReply)
}

// undone reports whether the server has surely executed nothing.
func undone(err error) bool {
	switch codeOf(err) {
	case "40001", "40P01": // serialization, deadlock: rolled back, and may succeed next time
		return true
	case "57P05": // the server had closed the connection, which was idle for too long
		return true
	}
	return pgconn.SafeToRetry(err)
}

// isReadOnly reports whether the server rejects all changes.
func isReadOnly(err error) bool { return codeOf(err) == "25006" }

var (
	errStandby         = errors.New("the server is a standby")
	errReadOnlyDefault = errors.New("default_transaction_read_only is on")
)

// whyReadOnly adds the reason why a server rejects changes, where the reason is known:
// servers report it since version 14, and poolers do not pass it on.
func whyReadOnly(err error, c *pgconn.PgConn) error {
	switch {
	case !isReadOnly(err):
	case c.ParameterStatus("in_hot_standby") == "on":
		return fmt.Errorf("%w: %w", errStandby, err)
	case c.ParameterStatus("default_transaction_read_only") == "on":
		return fmt.Errorf("%w: %w", errReadOnlyDefault, err)
	}
	return err
}

// cutOff reports whether an established connection was lost before the reply: the pool
// has others, or opens one.
func cutOff(err error) bool {
	var connect *pgconn.ConnectError
	if code := codeOf(err); code != "" {
		return isDown(code)
	}
	return !errors.As(err, &connect) && !errors.Is(err, errClosed) && (isNetwork(err) || errors.Is(err, errUnreplicated))
}

// codeOf returns the code of an error of the server, "" for other errors.
func codeOf(err error) string {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// isDown reports whether a code means that the server shuts down or has closed the
// connection, or that a pooler has no connection to it.
func isDown(code string) bool {
	switch code {
	case "57P01", "57P02":
		return true
	}
	return strings.HasPrefix(code, "08")
}
