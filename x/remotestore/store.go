package remotestore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A Store is the use of a service by one client.
type Store struct {
	addresses []string
	tls       *tls.Config // nil: without; the transport changes its own
	token     *token
	transport *http.Transport
	servers   *servers

	life  context.Context
	end   context.CancelFunc
	mu    sync.Mutex // guards that no call begins after the end, and what follows
	calls sync.WaitGroup
	names names
}

// Open opens a store. It fails within 5 s if no server of the service can be reached,
// if TLS fails, if the token is not known, or if the service does not reach its own
// store; [Options].Lazy leaves that to the first call.
func Open(ctx context.Context, o Options) (*Store, error) {
	addresses, err := o.addresses()
	if err != nil {
		return nil, err
	}
	t, err := newToken(o)
	if err != nil {
		return nil, err
	}
	s := &Store{addresses: addresses, tls: o.TLS, token: t, transport: newTransport(o.TLS), names: names{used: map[string]time.Time{}}}
	s.servers = newServers(addresses, s.tls != nil, s.transport, t)
	s.life, s.end = context.WithCancel(context.Background())
	if !o.Lazy {
		if err := s.check(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Open is for [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.noteName(name)
	m := &semav1.StoreOpenRequest{Name: name, Config: wire.ConfigOf(c), Client: wire.ClientOf(by.Client), Key: by.Owner.Key[:], Highest: uint64(by.Highest), MustExist: by.MustExist}
	answer, err := call(ctx, s, opening, m, semav1connect.StoreServiceClient.Open)
	if err != nil {
		return 0, protocol.Config{}, err
	}
	return protocol.Session(answer.Session), wire.ReadConfig(answer.Config), nil
}

// Apply is for [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.noteName(name)
	answer, err := call(ctx, s, repeatable, wire.BatchOf(name, b), semav1connect.StoreServiceClient.Apply)
	if err != nil {
		return protocol.Reply{}, err
	}
	reply, err := wire.ReadReply(answer)
	if err != nil {
		return protocol.Reply{}, fmt.Errorf("%s: %w", s, err)
	}
	return reply, nil
}

// Inspect is for [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	answer, err := call(ctx, s, repeatable, &semav1.StoreInspectRequest{Name: name}, semav1connect.StoreServiceClient.Inspect)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	return wire.ReadSnapshot(answer), nil
}

// Administer is for [fleet.Store]. If the answer is lost, it fails with
// [sema.ErrUnavailable], and the command may have been done.
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	_, err := call(ctx, s, commanding, wire.CommandOf(name, c), semav1connect.StoreServiceClient.Administer)
	return err
}

// List implements [fleet.Store].
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	m := &semav1.StoreListRequest{Prefix: q.Prefix, After: q.After, Limit: uint32(q.Most())}
	answer, err := call(ctx, s, repeatable, m, semav1connect.StoreServiceClient.List)
	if err != nil {
		return nil, err
	}
	return wire.ReadSummaries(answer), nil
}

// Ping is for [fleet.Examiner]: the clock is that of the engine behind the service.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	answer, err := call(ctx, s, repeatable, &semav1.StorePingRequest{}, semav1connect.StoreServiceClient.Ping)
	if err != nil || answer.Clock == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(answer.Clock), nil
}

// Examine is for [fleet.Examiner]: it is the engine behind the service that is
// examined, as the service sees it.
func (s *Store) Examine(ctx context.Context) (findings []fleet.Finding, err error) {
	answer, err := call(ctx, s, repeatable, &semav1.StoreExamineRequest{}, semav1connect.StoreServiceClient.Examine)
	if err != nil {
		return nil, err
	}
	for _, f := range answer.Findings {
		findings = append(findings, fleet.Finding{Check: f.Check, Level: fleet.Level(f.Level), Seen: f.Seen, Advice: f.Advice})
	}
	return findings, nil
}

// Close lets go of the service. Calls that are on their way fail.
func (s *Store) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.calls.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// begin begins a call, unless the store is closed. It ends with the context that
// it is given, and with the store.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, nil, s.closed()
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(s.life, func() { cancel(s.closed()) })
	return ctx, func() {
		unbind()
		cancel(nil)
		s.calls.Done()
	}, nil
}

func (s *Store) closed() error { return fmt.Errorf("%s: the store is closed", s) }

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
