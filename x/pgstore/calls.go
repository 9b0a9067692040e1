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

// calls are the statements, each of which is one round trip and a transaction of
// its own.
type calls struct{ open, apply, inspect, configure, revoke, remove, list, news, channels string }

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
		open: call("begin_session", 15), apply: call("turn", 22), inspect: call("inspect", 1), configure: call("configure", 11),
		revoke: call("revoke_lease", 4), remove: call("remove", 1),
		news:     fmt.Sprintf("SELECT i, n.* FROM unnest($1::text[]) i, %s.news(i) n", in),
		channels: fmt.Sprintf("SELECT i, %s.channel(i) FROM unnest($1::text[]) i", in),
		list:     fmt.Sprintf("SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM %s.semaphore WHERE name >= $1 AND starts_with(name, $1)", in),
	}
}

// attempts is how often a statement is tried that was not done.
const attempts = 3

// query asks for one row. What the server has surely not done is tried again at
// once; if it is repeatable, so is what it may have done.
func (s *Store) query(caller context.Context, repeatable bool, scan func(pgx.Row) error, call string, arguments ...any) error {
	ctx, cancel := s.bound(caller, s.options.replyWithin)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.ask(ctx, scan, call, arguments)
		if err == nil {
			return nil
		}
		again := undone(err) || repeatable && cutOff(err)
		if isReadOnly(err) {
			s.pool.Reset() // by now another may be the primary, and be reached by the same name
			again = attempt == 1
		}
		if !again || attempt == attempts || ctx.Err() != nil {
			return s.fault(ctx, err)
		}
	}
}

// ask is one attempt. If there is no answer for long, the server may be gone
// without a word, and with it the other connections; and one that is given up has
// its place in the pool until all is tried to end it well.
func (s *Store) ask(ctx context.Context, scan func(pgx.Row) error, call string, arguments []any) error {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	err = scan(c.QueryRow(ctx, call, arguments...))
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

// bound returns a context that ends in time, though that of the caller may not: a
// server that is gone without a word never replies.
func (s *Store) bound(caller context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if end, bounded := caller.Deadline(); bounded && time.Until(end) <= within {
		return caller, func() {}
	}
	silent := fmt.Errorf("%w: no reply from postgres at %s within %v; it may still do what was asked (hint: check the network, and look for locks in pg_stat_activity)",
		sema.ErrUnavailable, s.address, within)
	return context.WithTimeoutCause(caller, within, silent)
}

// undone reports whether the server has surely done nothing.
func undone(err error) bool {
	switch codeOf(err) {
	case "40001", "40P01": // serialization, deadlock: rolled back, and may go well next time
		return true
	case "57P05": // it had ended the connection, on which nothing was asked for too long
		return true
	}
	return pgconn.SafeToRetry(err)
}

// isReadOnly reports whether the server rejects all that changes something.
func isReadOnly(err error) bool { return codeOf(err) == "25006" }

var (
	errStandby         = errors.New("the server is a standby")
	errReadOnlyDefault = errors.New("default_transaction_read_only is on")
)

// whyReadOnly adds the reason for which a server rejects changes, where it is known:
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

// cutOff reports whether an answer was lost on a connection that there was: the
// pool has others, or makes one.
func cutOff(err error) bool {
	var connect *pgconn.ConnectError
	if code := codeOf(err); code != "" {
		return isDown(code)
	}
	return !errors.As(err, &connect) && !errors.Is(err, errClosed) && (isNetwork(err) || errors.Is(err, errUnreplicated))
}

// codeOf is what the server calls an error, or "" if it is none of the server's.
func codeOf(err error) string {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// isDown reports whether a code says that the server ends, or ends a connection,
// or that a pooler has none to it.
func isDown(code string) bool {
	switch code {
	case "57P01", "57P02":
		return true
	}
	return strings.HasPrefix(code, "08")
}
