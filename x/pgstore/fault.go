package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/netfault"
)

var errClosed = errors.New("the store is closed")

// fault adds the address of the server to an error, and what to do about it. An error
// after which a retry may succeed wraps [sema.ErrUnavailable].
func (s *Store) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.life.Err() != nil {
		return fmt.Errorf("postgres %s: %w", s.address, errClosed)
	}
	var (
		failed  *pgconn.PgError
		connect *pgconn.ConnectError
	)
	if errors.As(err, &connect) {
		err = withoutTLSAttempts(connect)
	}
	switch {
	case errors.As(err, &failed):
		return s.explain(err, failed)
	case connect != nil:
		return fmt.Errorf("%w: cannot reach postgres at %s: %w", sema.ErrUnavailable, s.address, unreached(err, connect))
	case errors.Is(err, errUnreplicated):
		return fmt.Errorf("%w: postgres %s: %w; it is committed, but the next primary may not have it: retry", sema.ErrUnavailable, s.address, err)
	case isNetwork(err):
		return fmt.Errorf("%w: the connection to postgres at %s was lost: %w; the next call opens another", sema.ErrUnavailable, s.address, err)
	}
	return fmt.Errorf("postgres %s: %w", s.address, err)
}

// settingNames are the names of the TLS settings in URLs, for error messages.
var settingNames = netfault.SettingNames{Plain: "set sslmode=disable, or ssl=on on the server", Secure: "set sslmode=verify-full", CA: "sslrootcert=", Cert: "sslcert= and sslkey=",
	Name: "set sslmode=verify-ca, which does not compare names"}

// faults maps error codes of the server to kinds of faults.
var faults = map[string]fleet.Fault{
	"25006": fleet.FaultReadOnly,
	"28000": fleet.FaultAccess, "28P01": fleet.FaultAccess, "42501": fleet.FaultAccess,
	"53100": fleet.FaultFull, "53200": fleet.FaultFull,
}

// explain adds what to do about an error of the server.
func (s *Store) explain(err error, failed *pgconn.PgError) error {
	fault, advice, again := faults[failed.Code], "", isDown(failed.Code)
	switch failed.Code {
	case "25006":
		advice, again = readOnlyAdvice(err), true // it may be promoted, or its name may be moved to the primary
	case "40001", "40P01":
		advice, again = "nothing was done: it conflicted with other transactions; retry", true
	case "55P03":
		advice, again = "nothing was done; another transaction holds the lock of the semaphore's row for longer than lock_timeout: look for idle transactions in pg_stat_activity", true
	case "57014":
		advice, again = "nothing was done; the statement took longer than statement_timeout, or was cancelled: raise statement_timeout, or look for idle transactions in pg_stat_activity", true
	case "53100":
		advice, again = "nothing was done: the disk of the server is full; make room on it (tables, pg_wal and logs), and operations succeed again", true
	case "57P03", "57P05", "53300", "53200":
		again = true
	case "28P01", "28000":
		fault, advice = access(failed)
	case "3D000":
		advice = "create the database first: CREATE DATABASE …"
	case "42501":
		advice = "see the documentation of package pgstore for the rights that are needed"
	case "42P01", "42883", "3F000":
		advice = fmt.Sprintf("schema %q has changed since this program was started; restart it, or run sema migrate", s.options.Schema)
	}
	if again && advice == "" {
		advice = "retry when the server is available again"
	}
	if fault != "" {
		err = &netfault.Error{Fault: fault, Text: err.Error(), Cause: err}
	}
	if advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	if again {
		return fmt.Errorf("%w: postgres %s: %w", sema.ErrUnavailable, s.address, err)
	}
	return fmt.Errorf("postgres %s: %w", s.address, err)
}

// readOnlyAdvice returns what to do about a server that rejects changes.
func readOnlyAdvice(err error) string {
	const (
		standby = "name the primary, or all servers as ?host=a,b&port=5432,5432&target_session_attrs=read-write"
		setting = "set default_transaction_read_only to off for this role and database"
	)
	switch {
	case errors.Is(err, errStandby):
		return standby
	case errors.Is(err, errReadOnlyDefault):
		return setting
	}
	return "if it is a standby, " + standby + "; otherwise " + setting
}

// access returns the fault and the advice for a client that pg_hba.conf does not admit.
// If the file requires TLS, or a client certificate, the server's text contains that (in
// English).
func access(failed *pgconn.PgError) (fleet.Fault, string) {
	switch {
	case strings.Contains(failed.Message, "client certificate"):
		return fleet.FaultTLS, "set " + settingNames.Cert
	case strings.Contains(failed.Message, "no encryption"):
		return fleet.FaultAccess, "check user and password, and pg_hba.conf on the server: if it wants TLS (hostssl), " + settingNames.Secure
	}
	return fleet.FaultAccess, "check user and password, and pg_hba.conf on the server"
}

// Texts of pgx, which has no errors for them: of a server that is set to ssl=off, and of a server
// that did not accept a connection.
const (
	errNoTLS = "server refused TLS connection"
	errDial  = "dial error: "
)

// failedAttempts are the errors of the connections that were tried for one call. The text of each
// begins with the address of its server, and has no settings in it.
type failedAttempts []error

// Error implements error.
func (a failedAttempts) Error() string {
	var texts []string
	for _, err := range a {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, ", ")
}

// Unwrap returns the errors, for [errors.As].
func (a failedAttempts) Unwrap() []error { return a }

// withoutTLSAttempts returns the errors of a failed connection without the attempts in which the
// server rejected TLS, if TLS is optional. With sslmode=prefer, the default of PostgreSQL, an
// attempt without TLS follows each of these, and its error is the reason. If one attempt is left,
// and the server replied to it, the reply is the error.
func withoutTLSAttempts(connect *pgconn.ConnectError) error {
	joined, ok := connect.Unwrap().(interface{ Unwrap() []error })
	if !ok || connect.Config == nil {
		return connect
	}
	optional := connect.Config.TLSConfig == nil || slices.ContainsFunc(connect.Config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
	left := slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(err error) bool { return optional && strings.Contains(err.Error(), errNoTLS) })
	if len(left) == 0 {
		return connect
	}
	var failed *pgconn.PgError
	if len(left) == 1 && errors.As(left[0], &failed) {
		return failed
	}
	return failedAttempts(left)
}

// unreached returns why there is no connection.
func unreached(err error, connect *pgconn.ConnectError) error {
	if strings.Contains(err.Error(), errNoTLS) {
		err = netfault.ErrPlain
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) || errors.Is(err, pgconn.ErrStandbyConnection) {
		return &netfault.Error{Fault: fleet.FaultReadOnly, Text: fmt.Sprintf("no server accepts changes: promote a standby, start the primary, or set default_transaction_read_only to off (%v)", err), Cause: err}
	}
	hasCert := connect.Config != nil && connect.Config.TLSConfig != nil && len(connect.Config.TLSConfig.Certificates) > 0
	if why := netfault.Explain(err, settingNames, hasCert); why != nil {
		return why
	}
	text := ""
	switch {
	case errors.Is(err, syscall.ENOENT):
		text = "no such socket"
	case errors.Is(err, context.DeadlineExceeded) && wasAccepted(err):
		text = "the server accepts connections, but did not reply in time; check that it is not stopped or overloaded"
	case errors.Is(err, context.DeadlineExceeded):
		text = "connection timed out; check the address and the firewall"
	}
	if text != "" {
		return &netfault.Error{Fault: fleet.FaultConnection, Text: text, Cause: err}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner // the innermost error has neither user nor settings in it
	}
	return errors.New(err.Error())
}

// wasAccepted reports whether a connection was accepted in one of the attempts that have failed.
func wasAccepted(err error) bool {
	var tried failedAttempts
	return errors.As(err, &tried) && slices.ContainsFunc(tried, func(err error) bool { return !strings.Contains(err.Error(), errDial) })
}

// isNetwork reports whether an error is about a connection.
func isNetwork(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || errors.As(err, &network)
}
