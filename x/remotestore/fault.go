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

// told is an error of the engine's, or of the service itself. If the caller's time
// is over, that is what counts.
func (s *Store) told(ctx context.Context, fault *wire.Fault) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(fault, sema.ErrUnavailable) {
		return fmt.Errorf("%s: %w", s, fault)
	}
	return fault
}

// late is when the caller's time is over.
func (s *Store) late(ctx context.Context, to *server) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("the sema service at %s does not answer: %w", to.address, cause)
	}
	return cause
}

// lost is when nobody knows whether a command was done.
func (s *Store) lost(to *server, err error) error {
	return fmt.Errorf("%w: %w of the sema service at %s: %s; look whether it was done before you say it again", sema.ErrUnavailable, errLost, to.address, message(err))
}

var errLost = errors.New("the answer was lost")

// checkWithin bounds the check when a store is opened.
const checkWithin = 5 * time.Second

// check fails if no server can be reached, or if none of them serves this token.
func (s *Store) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	_, err := s.Ping(within)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, errDenied) || answeredAs(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported):
		return nil // the token is known, and allows other things than this
	case errors.Is(err, context.DeadlineExceeded):
		to, _ := s.servers.now()
		if explained := s.diagnose(to); explained != nil {
			return s.unreached(to, explained)
		}
		return fmt.Errorf("%w: %w; is it running, %s?", sema.ErrUnavailable, err, s.expected())
	}
	return err
}

// answeredAs reports whether an error was sent by the service.
func answeredAs(err, target error) bool {
	var sent *wire.Fault
	return errors.As(err, &sent) && errors.Is(sent, target)
}

// words are what URLs say about TLS.
var words = netfault.Words{Plain: "use " + plainScheme + "://", Secure: "use " + secureScheme + "://", CA: "ca=", Cert: "cert= and key="}

// diagnose connects to a server, to find out why it does not answer; nil if that
// is unknown.
func (s *Store) diagnose(to *server) *netfault.Error {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	err := netfault.Probe(ctx, netfault.Target{Address: to.address, TLS: s.tls, ALPN: []string{"h2", "http/1.1"}, Hello: "GET / HTTP/1.1\r\nHost: sema\r\n\r\n"})
	return netfault.Explain(err, words, s.hasCert())
}

func (s *Store) unreached(to *server, why *netfault.Error) error {
	at := to.address
	if isRefused(why) {
		at, why.Text = s.everywhere(), why.Text+" start it with: sema serve"
	}
	return fmt.Errorf("%w: cannot reach the sema service at %s: %w", sema.ErrUnavailable, at, why)
}

// hasCert reports whether this client shows a certificate.
func (s *Store) hasCert() bool {
	return s.tls != nil && (len(s.tls.Certificates) > 0 || s.tls.GetClientCertificate != nil)
}

// errDenied is for what a token that is known does not allow.
var errDenied = fmt.Errorf("%w: %w", fs.ErrPermission, fleet.FaultAccess)

// fault says what went wrong on the way to a server, and what to do about it. What
// may go well if it is tried again is [sema.ErrUnavailable].
func (s *Store) fault(to *server, err error) error {
	at := to.address
	if explained := netfault.Explain(err, words, s.hasCert()); explained != nil {
		return s.unreached(to, explained)
	}
	switch code := connect.CodeOf(err); {
	case code == connect.CodeUnauthenticated:
		return fmt.Errorf("%w: %w: the sema service at %s does not know the token (from %s): %s; check token_file=, token= or %s",
			fs.ErrPermission, fleet.FaultAccess, at, s.token.source(), message(err), TokenVariable)
	case code == connect.CodePermissionDenied:
		return fmt.Errorf("%w: the sema service at %s does not allow that with the token from %s: %s", errDenied, at, s.token.source(), message(err))
	case code == connect.CodeUnimplemented:
		return fmt.Errorf("there is no sema service at %s, or one of another version: %s; check host and port", at, message(err))
	case code == connect.CodeResourceExhausted:
		return fmt.Errorf("%w: the sema service at %s has too much to do: %s", sema.ErrUnavailable, at, message(err))
	case code == connect.CodeUnknown || code == connect.CodeInternal:
		return fmt.Errorf("the sema service at %s: %s", at, message(err))
	}
	if explained := s.diagnose(to); explained != nil {
		return s.unreached(to, explained)
	}
	return fmt.Errorf("%w: the sema service at %s does not answer as it should: %s; is it running, %s?", sema.ErrUnavailable, at, message(err), s.expected())
}

func (s *Store) everywhere() string { return strings.Join(s.addresses, ", ") }

// expected is what a server is like. One that misses a certificate may say so only
// when the first call is on its way, and then that is lost.
func (s *Store) expected() string {
	if s.tls != nil {
		return "with TLS, and does it want cert= and key="
	}
	return "without TLS"
}

// isRefused reports whether nobody is there.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// message is what an error says, without its code.
func message(err error) string {
	var coded *connect.Error
	if errors.As(err, &coded) && coded.Message() != "" {
		return coded.Message()
	}
	return err.Error()
}
