package remotestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/netfault"
	"github.com/sema-go/sema/x/internal/wire"
)

// remoteError returns an error that the store or the service has sent. It returns the
// cause of ctx instead if ctx has ended.
func (s *Store) remoteError(ctx context.Context, fault *wire.Fault) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(fault, sema.ErrUnavailable):
		return fmt.Errorf("%s: %w", s, fault)
	case errors.Is(fault, fs.ErrPermission):
		return &denial{fault, rightsHint}
	}
	return fault
}

// contextError returns the error of a call whose context has ended.
func (s *Store) contextError(ctx context.Context, to *server) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("the sema service at %s did not reply: %w", to.address, cause)
	}
	return cause
}

// lostReplyError returns the error of a command that may have been applied.
func (s *Store) lostReplyError(to *server, err error) error {
	return fmt.Errorf("%w: the sema service at %s: %w: %s (hint: check whether the command was applied before you repeat it)", sema.ErrUnavailable, to.address, errReplyLost, message(err))
}

var errReplyLost = errors.New("the reply to a command was lost")

// checkTimeout bounds the check when a store is opened.
const checkTimeout = 5 * time.Second

// check fails if no server can be reached, or if none accepts the token.
func (s *Store) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := s.Ping(within)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, errDenied) || isRemote(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported):
		return nil // the token is known, but does not allow Ping
	case errors.Is(err, context.DeadlineExceeded):
		to, _ := s.servers.current()
		if explained := s.diagnose(to); explained != nil {
			return s.unreachable(to, explained)
		}
		return fmt.Errorf("%w: %w (hint: check that its store replies: /readyz?verbose; and %s)", sema.ErrUnavailable, err, s.expected())
	}
	return err
}

// isRemote reports whether err was sent by the service and is target.
func isRemote(err, target error) bool {
	var sent *wire.Fault
	return errors.As(err, &sent) && errors.Is(sent, target)
}

// settingNames are the names of the TLS settings in URLs, for error messages.
var settingNames = netfault.SettingNames{Plain: "use " + plainScheme + "://", Secure: "use " + secureScheme + "://", CA: "ca=", Cert: "cert= and key="}

// diagnose connects to a server to find out why it does not reply. It returns nil if the
// reason is unknown.
func (s *Store) diagnose(to *server) *netfault.Error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	err := netfault.Probe(ctx, netfault.Target{Address: to.address, TLS: s.tls, ALPN: []string{"h2", "http/1.1"}, Hello: "GET / HTTP/1.1\r\nHost: sema\r\n\r\n"})
	return netfault.Explain(err, settingNames, s.hasCert())
}

// unreachable returns the error for a server that cannot be reached.
func (s *Store) unreachable(to *server, why *netfault.Error) error {
	at := to.address
	if isNotListening(why) {
		at, why.Text = s.allAddresses(), why.Text+" (hint: start it with sema serve)"
	}
	return fmt.Errorf("%w: cannot reach the sema service at %s: %w", sema.ErrUnavailable, at, why)
}

// hasCert reports whether this client has a certificate.
func (s *Store) hasCert() bool {
	return s.tls != nil && (len(s.tls.Certificates) > 0 || s.tls.GetClientCertificate != nil)
}

// errDenied is the error for operations that a known token does not allow.
var errDenied = fmt.Errorf("%w: %w", fs.ErrPermission, fleet.FaultAccess)

// A denial is the error of a call that the service denies because of the token. It is
// [fs.ErrPermission] and [fleet.FaultAccess], and not [sema.ErrUnavailable]: the service
// has replied.
type denial struct {
	cause error // contains fs.ErrPermission
	hint  string
}

// Error implements error.
func (d *denial) Error() string { return d.cause.Error() }

// Unwrap returns the cause and the fault, for [errors.Is].
func (d *denial) Unwrap() []error { return []error{d.cause, fleet.FaultAccess} }

// Hint returns what to do about the token. [sema.Hint] calls it.
func (d *denial) Hint() string { return d.hint }

// fault explains an error that was not sent by the store: what failed, and what to do
// about it. The result wraps [sema.ErrUnavailable] if a later call may succeed.
func (s *Store) fault(to *server, err error) error {
	at := to.address
	if explained := netfault.Explain(err, settingNames, s.hasCert()); explained != nil {
		return s.unreachable(to, explained)
	}
	switch code := connect.CodeOf(err); {
	case code == connect.CodeUnauthenticated && s.token.isMissing():
		return &denial{fmt.Errorf("%w: the sema service at %s requires a token, and this client has none", fs.ErrPermission, at), s.token.hint()}
	case code == connect.CodeUnauthenticated:
		return &denial{fmt.Errorf("%w: the sema service at %s rejects the token (source: %s): %s", fs.ErrPermission, at, s.token.source(), message(err)), s.token.hint()}
	case code == connect.CodePermissionDenied:
		return &denial{fmt.Errorf("%w: the sema service at %s denies this operation to the token (source: %s): %s", errDenied, at, s.token.source(), message(err)), rightsHint}
	case code == connect.CodeUnimplemented:
		return fmt.Errorf("no sema service at %s, or one of another version: %s; check host and port", at, message(err))
	case code == connect.CodeResourceExhausted:
		return fmt.Errorf("%w: the sema service at %s is overloaded: %s", sema.ErrUnavailable, at, message(err))
	case code == connect.CodeUnknown || code == connect.CodeInternal:
		return fmt.Errorf("the sema service at %s: %s", at, message(err))
	}
	if explained := s.diagnose(to); explained != nil {
		return s.unreachable(to, explained)
	}
	return fmt.Errorf("%w: the sema service at %s did not send a valid reply: %s (hint: check %s)", sema.ErrUnavailable, at, message(err), s.expected())
}

func (s *Store) allAddresses() string { return strings.Join(s.addresses, ", ") }

// expected returns what to check about the server, for a hint. A server that requires a
// client certificate may reject the client only during the first call. The reason is then
// lost.
func (s *Store) expected() string {
	if s.tls != nil {
		return "that it runs with TLS, and whether it requires cert= and key="
	}
	return "that it runs without TLS"
}

// isNotListening reports whether no process listens at the address.
func isNotListening(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// message returns the text of an error without its code.
func message(err error) string {
	var coded *connect.Error
	if errors.As(err, &coded) && coded.Message() != "" {
		return coded.Message()
	}
	return err.Error()
}
