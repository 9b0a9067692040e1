package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/netfault"
)

// A connection is made when it is needed first: to check the store when it is
// opened or, if that is lazy, with the first call.
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

// opening bounds the check when a store is opened.
const opening = 5 * time.Second

// check fails if no member can be reached, if TLS fails, or if a majority does not
// serve this user.
func (s *Store) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	if err := s.probe(within); err != nil {
		return s.fault(err)
	}
	_, err := s.Ping(within)
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// diagnose finds out why there was no answer: the client waits for a connection
// and does not say what is wrong with it.
func (s *Store) diagnose(late error) error {
	ctx, cancel := context.WithTimeout(context.Background(), diagnosis)
	defer cancel()
	err := s.probe(ctx)
	switch explained := netfault.Explain(err, words, s.hasCert()); {
	case err == nil:
		return late // somebody is there
	case isRefused(err) || explained != nil && explained.Fault == fleet.FaultTLS:
		return err
	}
	return fmt.Errorf("%w: %w", err, late)
}

// probe connects to the members, and fails if there is none to which that works.
func (s *Store) probe(ctx context.Context) error {
	endpoints := s.connection.config.Endpoints
	results := make(chan error, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			results <- netfault.Probe(ctx, netfault.Target{Address: endpoint, TLS: s.connection.config.TLS, ALPN: []string{"h2"}, Hello: "GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n"})
		}()
	}
	var last error
	for range endpoints {
		err := <-results
		if err == nil {
			return nil
		}
		last = err
	}
	return last
}

// diagnosis is how long it may take.
const diagnosis = time.Second

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

// codeOf is by what gRPC says, of whichever kind the error is.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// words are what URLs say about TLS.
var words = netfault.Words{Plain: "leave tls, ca, cert and key out of the URL", Secure: "set tls=on or ca= in the URL", CA: "ca=", Cert: "cert= and key="}

// A reason is what to do about an error of etcd's, and what kind of fault it is.
type reason struct {
	is    []error
	fault fleet.Fault // "": none
	again bool        // it may pass without a change of this program's settings
	hint  string
}

func (s *Store) reasons() []reason {
	return []reason{
		{is: []error{rpctypes.ErrNoSpace}, fault: fleet.FaultFull, again: true,
			hint: "its database is full: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; and have it compact by itself, with --auto-compaction-retention"},
		{is: []error{rpctypes.ErrAuthFailed}, fault: fleet.FaultAccess, hint: "user or password is wrong"},
		{is: []error{rpctypes.ErrUserEmpty}, fault: fleet.FaultAccess, hint: "it wants a user: etcd://user:password@…"},
		{is: []error{rpctypes.ErrPermissionDenied}, fault: fleet.FaultAccess,
			hint: fmt.Sprintf("the user may not use %q: etcdctl role grant-permission ROLE --prefix=true readwrite %[1]q", s.keys.prefix)},
		{is: []error{rpctypes.ErrAuthNotEnabled}, fault: fleet.FaultAccess, hint: "it has no users: leave them out of the URL"},
		{is: []error{rpctypes.ErrRequestTooLarge}, hint: "its --max-request-bytes is lower than the usual 1.5 MB"},
		{is: []error{rpctypes.ErrTooManyOps}, hint: "its --max-txn-ops is lower than the usual 128"},
		{is: []error{rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost},
			again: true, hint: "is a majority of its members up?"},
	}
}

// fault says where an error comes from, and what to do about it. One that may pass
// is [sema.ErrUnavailable] too.
func (s *Store) fault(err error) error {
	at := strings.Join(s.connection.config.Endpoints, ", ")
	if explained := netfault.Explain(err, words, s.hasCert()); explained != nil {
		return fmt.Errorf("%w: cannot reach etcd at %s: %w", sema.ErrUnavailable, at, explained)
	}
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		err = known
	}
	if errors.Is(err, errClosed) {
		return fmt.Errorf("etcd at %s: %w", at, errClosed)
	}
	for _, r := range s.reasons() {
		for _, target := range r.is {
			if errors.Is(err, target) || err.Error() == target.Error() {
				return r.explain(at, err)
			}
		}
	}
	switch {
	case isRefused(err):
		refused := &netfault.Error{Fault: fleet.FaultConnection, Text: "connection refused; is it running?", Cause: err}
		return fmt.Errorf("%w: cannot reach etcd at %s: %w", sema.ErrUnavailable, at, refused)
	case isLate(err):
		return fmt.Errorf("%w: etcd at %s does not answer: %w; is it running, with a majority of its members up?", sema.ErrUnavailable, at, err)
	case codeOf(err) == codes.Unavailable:
		return fmt.Errorf("%w: etcd at %s: %w; is it running, and a majority of its members up?", sema.ErrUnavailable, at, err)
	}
	return fmt.Errorf("etcd at %s: %w", at, err)
}

func (r reason) explain(at string, err error) error {
	if r.fault != "" {
		err = &netfault.Error{Fault: r.fault, Text: err.Error(), Cause: err}
	}
	if r.again {
		return fmt.Errorf("%w: etcd at %s: %w; %s", sema.ErrUnavailable, at, err, r.hint)
	}
	return fmt.Errorf("etcd at %s: %w; %s", at, err, r.hint)
}

// hasCert reports whether this client shows a certificate.
func (s *Store) hasCert() bool {
	secure := s.connection.config.TLS
	return secure != nil && (len(secure.Certificates) > 0 || secure.GetClientCertificate != nil)
}
