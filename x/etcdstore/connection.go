package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema/fleet/protocol"
)

// A connection is made when it is needed first, so that a program can start
// while etcd is away.
type connection struct {
	config clientv3.Config
	life   context.Context
	mu     sync.Mutex
	made   *clientv3.Client
}

// client is the one for all calls. To make it takes an answer of etcd if there is
// a user to log in.
func (c *connection) client(ctx context.Context) (*clientv3.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, errClosed
	}
	if c.made == nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		made, err := clientv3.New(c.config)
		if err != nil {
			return nil, err
		}
		c.made = made
	}
	return c.made, nil
}

func (c *connection) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		return nil
	}
	made := c.made
	c.made = nil
	if err := made.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// isLate reports whether an answer did not come in time, on this side or, which
// the server says without a code for it, on the other.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || codeOf(err) == codes.DeadlineExceeded ||
		codeOf(err) == codes.Unknown && strings.HasSuffix(err.Error(), context.DeadlineExceeded.Error())
}

// diagnose finds out why there was no answer: the client waits for a connection
// and does not say what is wrong with it.
func (s *Store) diagnose(late error) error {
	var last error
	for _, endpoint := range s.connection.config.Endpoints {
		if last = s.tryDial(endpoint); last == nil {
			return late // somebody is there
		}
	}
	if isRefused(last) || isInsecure(last) {
		return last
	}
	return fmt.Errorf("%w: %w", late, last)
}

func (s *Store) tryDial(endpoint string) error {
	c, err := net.DialTimeout("tcp", endpoint, diagnosis)
	if err != nil {
		return err
	}
	defer c.Close()
	if s.connection.config.TLS == nil {
		return nil
	}
	secure := s.connection.config.TLS.Clone()
	secure.NextProtos = []string{"h2"}
	secure.ServerName, _, _ = net.SplitHostPort(endpoint)
	c.SetDeadline(time.Now().Add(diagnosis))
	over := tls.Client(c, secure)
	if err := over.Handshake(); err != nil {
		return err
	}
	// That a certificate is missing is said after the handshake.
	if _, err := over.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// diagnosis is how long it may take.
const diagnosis = 200 * time.Millisecond

// passes reports whether an error may pass by itself soon.
func passes(err error) bool {
	var p permanent
	if errors.As(err, &p) || errors.Is(err, errClosed) || errors.Is(err, protocol.ErrVersion) {
		return false
	}
	if isLate(err) {
		return true
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.OutOfRange:
		return !isRefused(err)
	}
	return errors.Is(err, rpctypes.ErrTooManyRequests)
}

// isRefused reports whether nobody is there at all, which passes with a start of
// the server and not by asking again.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection refused")
}

// isInsecure reports whether the two cannot agree on TLS.
func isInsecure(err error) bool {
	return strings.Contains(err.Error(), "tls:") || strings.Contains(err.Error(), "x509:")
}

// codeOf is by what gRPC says, of whichever kind the error is.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// fault says where an error comes from, and what to do about it.
func (s *Store) fault(err error) error {
	at := strings.Join(s.connection.config.Endpoints, ", ")
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		err = known
	}
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) || err.Error() == target.Error() {
				return true
			}
		}
		return false
	}
	var hint string
	switch {
	case is(errClosed):
		return fmt.Errorf("etcd at %s: %w", at, errClosed)
	case is(rpctypes.ErrNoSpace):
		hint = "its database is full: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; and have it compact by itself, with --auto-compaction-retention"
	case is(rpctypes.ErrAuthFailed):
		hint = "user or password is wrong"
	case is(rpctypes.ErrUserEmpty):
		hint = "it wants a user: etcd://user:password@…"
	case is(rpctypes.ErrPermissionDenied):
		hint = fmt.Sprintf("the user may not use %q: etcdctl role grant-permission ROLE --prefix=true readwrite %[1]q", s.keys.prefix)
	case is(rpctypes.ErrAuthNotEnabled):
		hint = "it has no users: leave them out of the URL"
	case is(rpctypes.ErrRequestTooLarge):
		hint = "its --max-request-bytes is lower than the usual 1.5 MB"
	case is(rpctypes.ErrTooManyOps):
		hint = "its --max-txn-ops is lower than the usual 128"
	case is(rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost):
		hint = "is a majority of its members up?"
	case isRefused(err):
		return fmt.Errorf("cannot reach etcd at %s: connection refused; is it running?", at)
	case isInsecure(err):
		return fmt.Errorf("cannot reach etcd at %s: %w; are tls, ca, cert and key as the server wants them?", at, err)
	case isLate(err) && s.connection.config.TLS == nil:
		return fmt.Errorf("etcd at %s does not answer: %w; is it running, with a majority of its members up, and without TLS?", at, err)
	case isLate(err):
		return fmt.Errorf("etcd at %s does not answer: %w; is it running, with a majority of its members up?", at, err)
	case codeOf(err) == codes.Unavailable:
		hint = "is it running, and a majority of its members up?"
	}
	if hint != "" {
		return fmt.Errorf("etcd at %s: %w; %s", at, err, hint)
	}
	return fmt.Errorf("etcd at %s: %w", at, err)
}
