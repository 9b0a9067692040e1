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

// A connection opens its client with the first call that needs it: with the check when
// the store is opened or, if that is lazy, with the first operation.
type connection struct {
	config clientv3.Config
	life   context.Context
	mu     sync.Mutex       // guards opened
	opened *clientv3.Client // nil: not opened yet, or closed
}

// client returns the client for all calls. If a user is set, opening it needs a reply of
// etcd.
func (c *connection) client(ctx context.Context) (*clientv3.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, errClosed
	}
	if c.opened == nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		client, err := clientv3.New(c.config)
		if err != nil {
			return nil, err
		}
		c.opened = client
	}
	return c.opened, nil
}

func (c *connection) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened == nil {
		return nil
	}
	client := c.opened
	c.opened = nil
	if err := client.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// isTimeout reports whether there was no reply in time. The deadline may be that of this
// process or one of the server, which reports it with code Unknown.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || codeOf(err) == codes.DeadlineExceeded ||
		codeOf(err) == codes.Unknown && strings.HasSuffix(err.Error(), context.DeadlineExceeded.Error())
}

// openTimeout bounds the check when a store is opened.
const openTimeout = 5 * time.Second

// check fails if no member can be reached, if TLS fails, or if a majority does not
// serve this user.
func (s *Store) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, openTimeout)
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

// diagnose finds out why there was no reply: the client waits for a connection and does
// not report what is wrong with it.
func (s *Store) diagnose(late error) error {
	ctx, cancel := context.WithTimeout(context.Background(), diagnoseTimeout)
	defer cancel()
	err := s.probe(ctx)
	switch explained := netfault.Explain(err, settingNames, s.hasCert()); {
	case err == nil:
		return late // a member accepts connections
	case isUnreachable(err) || explained != nil && explained.Fault == fleet.FaultTLS:
		return err
	}
	return fmt.Errorf("%w: %w", err, late)
}

// probe connects to all members, and fails if none of the connections succeeds.
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

// diagnoseTimeout bounds diagnose.
const diagnoseTimeout = time.Second

// isTemporary reports whether a retry may succeed soon.
func isTemporary(err error) bool {
	var p permanent
	if errors.As(err, &p) || errors.Is(err, errClosed) || errors.Is(err, protocol.ErrVersion) {
		return false
	}
	if isTimeout(err) {
		return true
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.OutOfRange:
		return !isUnreachable(err)
	}
	return errors.Is(err, rpctypes.ErrTooManyRequests)
}

// isUnreachable reports whether no program listens at the address. A retry does not help
// before the server is started.
func isUnreachable(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection refused")
}

// codeOf returns the gRPC code of an error, of whichever type it is.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// settingNames are the names of the TLS settings in URLs, for error messages.
var settingNames = netfault.SettingNames{Plain: "leave tls, ca, cert and key out of the URL", Secure: "set tls=on or ca= in the URL", CA: "ca=", Cert: "cert= and key="}

// A reason is the advice for an error of etcd, and the kind of the fault.
type reason struct {
	is     []error
	fault  fleet.Fault // "": none
	again  bool        // it may succeed later without a change of this program's settings
	advice string
}

func (s *Store) reasons() []reason {
	return []reason{
		{is: []error{rpctypes.ErrNoSpace}, fault: fleet.FaultFull, again: true,
			advice: "its database is full: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; set --auto-compaction-retention, so that it compacts by itself"},
		{is: []error{rpctypes.ErrAuthFailed}, fault: fleet.FaultAccess, advice: "user or password is wrong"},
		{is: []error{rpctypes.ErrUserEmpty}, fault: fleet.FaultAccess, advice: "it wants a user: etcd://user:password@…"},
		{is: []error{rpctypes.ErrPermissionDenied}, fault: fleet.FaultAccess,
			advice: fmt.Sprintf("the user may not use %q: etcdctl role grant-permission ROLE --prefix=true readwrite %[1]q", s.keys.prefix)},
		{is: []error{rpctypes.ErrAuthNotEnabled}, fault: fleet.FaultAccess, advice: "it has no users: leave them out of the URL"},
		{is: []error{rpctypes.ErrRequestTooLarge}, advice: "its --max-request-bytes is lower than the usual 1.5 MB"},
		{is: []error{rpctypes.ErrTooManyOps}, advice: "its --max-txn-ops is lower than the usual 128"},
		{is: []error{rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost},
			again: true, advice: "check that a majority of its members is up"},
	}
}

// fault adds the addresses to an error, and what to do about it. An error after which a
// retry may succeed wraps [sema.ErrUnavailable].
func (s *Store) fault(err error) error {
	at := strings.Join(s.connection.config.Endpoints, ", ")
	if explained := netfault.Explain(err, settingNames, s.hasCert()); explained != nil {
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
	case isUnreachable(err):
		explained := &netfault.Error{Fault: fleet.FaultConnection, Text: "connection refused", Cause: err}
		return fmt.Errorf("%w: cannot reach etcd at %s: %w", sema.ErrUnavailable, at, explained)
	case isTimeout(err):
		if !errors.Is(err, context.DeadlineExceeded) {
			err = context.DeadlineExceeded // of the server, which reports it as text
		}
		return fmt.Errorf("%w: etcd at %s does not reply: %w (hint: check that it runs, and that a majority of its members is up)", sema.ErrUnavailable, at, err)
	case codeOf(err) == codes.Unavailable:
		return fmt.Errorf("%w: etcd at %s: %w (hint: check that it runs, and that a majority of its members is up)", sema.ErrUnavailable, at, err)
	}
	return fmt.Errorf("etcd at %s: %w", at, err)
}

func (r reason) explain(at string, err error) error {
	if r.fault != "" {
		err = &netfault.Error{Fault: r.fault, Text: err.Error(), Cause: err}
	}
	if r.again {
		return fmt.Errorf("%w: etcd at %s: %w; %s", sema.ErrUnavailable, at, err, r.advice)
	}
	return fmt.Errorf("etcd at %s: %w; %s", at, err, r.advice)
}

// hasCert reports whether this client has a certificate.
func (s *Store) hasCert() bool {
	secure := s.connection.config.TLS
	return secure != nil && (len(secure.Certificates) > 0 || secure.GetClientCertificate != nil)
}
