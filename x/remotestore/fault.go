package remotestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
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

// fault says what went wrong on the way to a server, and what to do about it. What
// may go well if it is tried again is [sema.ErrUnavailable].
func (s *Store) fault(to *server, err error) error {
	at := to.address
	var (
		resolve     *net.DNSError
		record      tls.RecordHeaderError
		unknown     x509.UnknownAuthorityError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
	)
	switch code := connect.CodeOf(err); {
	case code == connect.CodeUnauthenticated:
		return fmt.Errorf("%w: the sema service at %s does not know the token (from %s): %s; check token_file=, token= or %s",
			fs.ErrPermission, at, s.token.source(), message(err), TokenVariable)
	case code == connect.CodePermissionDenied:
		return fmt.Errorf("%w: the sema service at %s does not allow that with the token from %s: %s", fs.ErrPermission, at, s.token.source(), message(err))
	case code == connect.CodeUnimplemented:
		return fmt.Errorf("there is no sema service at %s, or one of another version: %s; check host and port", at, message(err))
	case code == connect.CodeResourceExhausted:
		return fmt.Errorf("%w: the sema service at %s has too much to do: %s", sema.ErrUnavailable, at, message(err))
	case isRefused(err):
		return fmt.Errorf("%w: cannot reach the sema service at %s: connection refused; is it running? start it with: sema serve", sema.ErrUnavailable, s.everywhere())
	case errors.As(err, &resolve):
		return fmt.Errorf("%w: cannot reach the sema service at %s: host %q is not known; check its name", sema.ErrUnavailable, at, resolve.Name)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: the sema service at %s does not speak TLS; use %s://", sema.ErrUnavailable, at, plainScheme)
	case errors.As(err, &unknown), errors.As(err, &certificate):
		return fmt.Errorf("%w: cannot trust the sema service at %s: %s; is its authority the one in ca=?", sema.ErrUnavailable, at, innermost(err))
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Errorf("%w: the sema service at %s refuses TLS: %s; does it want cert= and key=?", sema.ErrUnavailable, at, innermost(err))
	case code == connect.CodeUnknown || code == connect.CodeInternal:
		return fmt.Errorf("the sema service at %s: %s", at, message(err))
	}
	return fmt.Errorf("%w: the sema service at %s does not answer as it should: %s; is it running, %s?", sema.ErrUnavailable, at, message(err), s.expected())
}

func (s *Store) everywhere() string { return strings.Join(s.addresses, ", ") }

// expected is what a server is like. One that misses a certificate may say so only
// when the first call is on its way, and then that is lost.
func (s *Store) expected() string {
	if s.secure {
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

// innermost is the text of the error that all others wrap.
func innermost(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}
