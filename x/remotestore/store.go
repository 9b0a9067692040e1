package remotestore

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A Store is a client of a sema service. It implements [fleet.Store].
type Store struct {
	addresses []string
	tls       *tls.Config // nil without TLS; the transport modifies its own copy
	token     *token
	transport *http.Transport
	servers   *servers
	pause     time.Duration // the first pause after a stream has failed; changed only by tests

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards the fields below, and ensures that no call begins after Close
	calls  sync.WaitGroup
	names  names
}

// Open returns a store. It fails within 5s if no server of the service can be reached or
// TLS fails. It also fails if the token is unknown, or if the service does not reach its
// own store. With [Options].Lazy the first call fails instead.
func Open(ctx context.Context, o Options) (*Store, error) {
	addresses, err := o.addresses()
	if err != nil {
		return nil, err
	}
	t, err := newToken(o)
	if err != nil {
		return nil, err
	}
	s := &Store{addresses: addresses, tls: o.TLS, token: t, transport: newTransport(o.TLS), pause: firstPause, names: names{used: map[string]time.Time{}}}
	s.servers = newServers(addresses, s.tls != nil, s.transport, t)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if !o.Lazy {
		if err := s.check(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.noteName(name)
	m := &semav1.StoreOpenRequest{Name: name, Config: wire.ConfigOf(c), Client: wire.ClientOf(by.Client), Key: by.Owner.Key[:], Highest: uint64(by.Highest), MustExist: by.MustExist}
	response, err := call(ctx, s, callerRepeats, m, semav1connect.StoreServiceClient.Open)
	if err != nil {
		return 0, protocol.Config{}, err
	}
	return protocol.Session(response.Session), wire.ReadConfig(response.Config), nil
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.noteName(name)
	response, err := call(ctx, s, repeatable, wire.BatchOf(name, b), semav1connect.StoreServiceClient.Apply)
	if err != nil {
		return protocol.Reply{}, err
	}
	reply, err := wire.ReadReply(response)
	if err != nil {
		return protocol.Reply{}, fmt.Errorf("%s: %w", s, err)
	}
	return reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	response, err := call(ctx, s, repeatable, &semav1.StoreInspectRequest{Name: name}, semav1connect.StoreServiceClient.Inspect)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	return wire.ReadSnapshot(response), nil
}

// Administer implements [fleet.Store]. If the reply is lost, it fails with
// [sema.ErrUnavailable], and the command may have been applied.
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	_, err := call(ctx, s, neverRepeat, wire.CommandOf(name, c), semav1connect.StoreServiceClient.Administer)
	return err
}

// List implements [fleet.Store].
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	m := &semav1.StoreListRequest{Prefix: q.Prefix, After: q.After, Limit: uint32(q.Most())}
	response, err := call(ctx, s, repeatable, m, semav1connect.StoreServiceClient.List)
	if err != nil {
		return nil, err
	}
	return wire.ReadSummaries(response), nil
}

// Ping implements [fleet.Examiner]. It returns the clock of the store behind the service.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	response, err := call(ctx, s, repeatable, &semav1.StorePingRequest{}, semav1connect.StoreServiceClient.Ping)
	if err != nil || response.Clock == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(response.Clock), nil
}

// Examine implements [fleet.Examiner]. It examines the store behind the service, from the
// service.
func (s *Store) Examine(ctx context.Context) (findings []fleet.Finding, err error) {
	response, err := call(ctx, s, repeatable, &semav1.StoreExamineRequest{}, semav1connect.StoreServiceClient.Examine)
	if err != nil {
		return nil, err
	}
	for _, f := range response.Findings {
		findings = append(findings, fleet.Finding{Check: f.Check, Level: fleet.Level(f.Level), Seen: f.Seen, Advice: f.Advice})
	}
	return findings, nil
}

// Close closes the connections to the service. Calls in flight fail.
func (s *Store) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.calls.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// names are the names of the semaphores that were used recently.
type names struct {
	used    map[string]time.Time // when each was last used
	pruneAt int                  // number of names at which unused ones are removed; at least minPruned
}

const (
	minPruned   = 256
	unusedAfter = 10 * time.Minute
)

// noteName records that a semaphore is used.
func (s *Store) noteName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.names
	now := time.Now()
	if _, known := n.used[name]; !known && len(n.used) >= max(n.pruneAt, minPruned) {
		maps.DeleteFunc(n.used, func(_ string, last time.Time) bool { return now.Sub(last) > unusedAfter })
		n.pruneAt = 2 * len(n.used)
	}
	n.used[name] = now
}

// begin starts a call, unless the store is closed. The context that it returns ends with
// ctx and with the store. The caller must call the function that it returns.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, nil, s.closedError()
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(s.ctx, func() { cancel(s.closedError()) })
	return ctx, func() {
		unbind()
		cancel(nil)
		s.calls.Done()
	}, nil
}

func (s *Store) closedError() error { return fmt.Errorf("%s: the store is closed", s) }

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
