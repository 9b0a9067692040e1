package server_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
	_ "github.com/sema-go/sema/x/redisstore"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// TestUnavailable_Redis checks that every request gets 503 soon, with Retry-After, if Redis is down
// or does not reply.
func TestUnavailable_Redis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]storetest.Fault{
		"no replies":           {LoseRequests: true, LoseReplies: true},
		"connections rejected": {Reject: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := storetest.NewProxy(t, redistest.Start(t).Address)
			store, err := fleet.OpenStore(t.Context(), "redis://"+proxy.Address)
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, store, server.Options{})
			lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "").header.Get("Location")
			proxy.SetFault(fault)
			if fault.Reject {
				proxy.Cut()
			}
			s.wantUnavailable(lease)
			s.rpcUnavailable(strings.TrimPrefix(lease, "/v1/semaphores/db/leases/"))
			if !strings.Contains(s.log.String(), "redis at") {
				t.Errorf("the log has no cause: %s", s.log)
			}
			proxy.Heal()
		})
	}
}

// A deniedStore denies everything while denied is set, as another service does that does not know
// the token of this one.
type deniedStore struct {
	fleet.Store
	denied atomic.Bool
}

func (d *deniedStore) denial() error {
	if d.denied.Load() {
		return fmt.Errorf("%w: the service at 127.0.0.1:1 rejects the token", fs.ErrPermission)
	}
	return nil
}

func (d *deniedStore) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := d.denial(); err != nil {
		return 0, protocol.Config{}, err
	}
	return d.Store.Open(ctx, name, c, by)
}

func (d *deniedStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := d.denial(); err != nil {
		return protocol.Reply{}, err
	}
	return d.Store.Apply(ctx, name, b)
}

func (d *deniedStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if err := d.denial(); err != nil {
		return protocol.Snapshot{}, err
	}
	return d.Store.Inspect(ctx, name)
}

func (d *deniedStore) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	if err := d.denial(); err != nil {
		return nil, err
	}
	return d.Store.List(ctx, q)
}

func (d *deniedStore) Administer(ctx context.Context, name string, c fleet.Command) error {
	if err := d.denial(); err != nil {
		return err
	}
	return d.Store.Administer(ctx, name, c)
}

// TestUnavailable_StoreDeniesTheServer checks that a response does not blame the client's
// token if the store denies access to the server.
func TestUnavailable_StoreDeniesTheServer(t *testing.T) {
	t.Parallel()
	store := &deniedStore{Store: memstore.New()}
	s := open(t, store, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "").header.Get("Location")
	store.denied.Store(true)
	s.wantUnavailable(lease)
	s.rpcUnavailable(strings.TrimPrefix(lease, "/v1/semaphores/db/leases/"))
	if !strings.Contains(s.log.String(), "rejects the token") {
		t.Errorf("the log has no cause: %s", s.log)
	}
	store.denied.Store(false)
}

// requestsOf returns one request of each kind.
func requestsOf(lease string) [][3]string {
	return [][3]string{
		{"GET", "/v1/semaphores", ""}, {"GET", "/v1/semaphores?prefix=d", ""}, {"GET", "/v1/semaphores/db", ""}, {"GET", "/v1/semaphores/db/watch", ""},
		{"PUT", "/v1/semaphores/db", `{"capacity": 6}`}, {"PUT", "/v1/semaphores/new", `{"capacity": 6}`},
		{"POST", "/v1/semaphores/db/drain", ""}, {"POST", "/v1/semaphores/db/resume", ""}, {"DELETE", "/v1/semaphores/db", ""},
		{"POST", "/v1/semaphores/db/leases/1/revoke", ""}, {"PUT", lease, ""}, {"DELETE", lease, ""}, {"POST", "/v1/semaphores/db/leases", ""}, {"POST", "/v1/semaphores/new/leases?capacity=1", ""},
	}
}

func (s *site) wantUnavailable(lease string) {
	s.t.Helper()
	var wg sync.WaitGroup
	for _, request := range requestsOf(lease) {
		wg.Go(func() {
			a := s.send(request[0], request[1], request[2])
			if a.status != 503 || a.header.Get("Retry-After") == "" || a.body["type"] != "/problems/store-unavailable" {
				s.t.Errorf("%v: %d %v %s", request, a.status, a.header, a.text)
			}
			if strings.Contains(a.text, "127.0.0.1") {
				s.t.Errorf("%v: the response contains the store's address: %s", request, a.text)
			}
		})
	}
	wg.Wait()
}

func (s *site) rpcUnavailable(lease string) {
	s.t.Helper()
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	programs := semav1connect.NewStoreServiceClient(s.http.Client(), s.url)
	ctx := s.t.Context()
	var wg sync.WaitGroup
	for name, call := range map[string]func() error{
		"List":      func() error { _, err := c.List(ctx, &semav1.ListRequest{}); return err },
		"Info":      func() error { _, err := c.Info(ctx, &semav1.InfoRequest{Semaphore: "db"}); return err },
		"Configure": func() error { _, err := c.Configure(ctx, &semav1.ConfigureRequest{Semaphore: "db"}); return err },
		"Drain":     func() error { _, err := c.Drain(ctx, &semav1.DrainRequest{Semaphore: "db"}); return err },
		"Resume":    func() error { _, err := c.Resume(ctx, &semav1.ResumeRequest{Semaphore: "db"}); return err },
		"Delete":    func() error { _, err := c.Delete(ctx, &semav1.DeleteRequest{Semaphore: "db"}); return err },
		"Revoke": func() error {
			_, err := c.Revoke(ctx, &semav1.RevokeRequest{Semaphore: "db", Lease: 1})
			return err
		},
		"Acquire": func() error { _, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "db"}); return err },
		"Renew":   func() error { _, err := c.Renew(ctx, &semav1.RenewRequest{Semaphore: "db", Id: lease}); return err },
		"Release": func() error { _, err := c.Release(ctx, &semav1.ReleaseRequest{Semaphore: "db", Id: lease}); return err },
		"Watch": func() error {
			stream, err := c.Watch(ctx, &semav1.WatchRequest{Semaphore: "db"})
			if err != nil {
				return err
			}
			defer stream.Close()
			stream.Receive()
			return stream.Err()
		},
		"store List":    func() error { _, err := programs.List(ctx, &semav1.StoreListRequest{}); return err },
		"store Inspect": func() error { _, err := programs.Inspect(ctx, &semav1.StoreInspectRequest{Name: "db"}); return err },
	} {
		wg.Go(func() {
			err := call()
			if connect.CodeOf(err) != connect.CodeUnavailable {
				s.t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// TestUnavailable_ClientDisconnected checks that a disconnected client is not an outage of the
// store.
func TestUnavailable_ClientDisconnected(t *testing.T) {
	t.Parallel()
	store := &stuck{Store: memstore.New(), stuck: make(chan struct{})}
	s := open(t, store, server.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
		_, err := c.Info(ctx, &semav1.InfoRequest{Semaphore: "db"})
		if connect.CodeOf(err) != connect.CodeCanceled {
			t.Error(err)
		}
	}()
	<-store.stuck
	cancel()
	<-done
	if strings.Contains(s.log.String(), "store unavailable") {
		t.Error(s.log)
	}
}

// TestUnavailable_CallersShareTheFailure checks that any number of requests for a semaphore of a
// store that does not reply get 503 within the timeout of one operation.
func TestUnavailable_CallersShareTheFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(hung{memstore.New()}, server.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		start := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/semaphores/db", nil))
				if took := time.Since(start); w.Code != 503 || took != 5*time.Second {
					t.Errorf("%d after %v", w.Code, took)
				}
			})
			time.Sleep(time.Second)
		}
		wg.Wait()
	})
}

// TestUnavailable_HungStore checks that a store that never replies delays no request beyond the
// timeout.
func TestUnavailable_HungStore(t *testing.T) {
	t.Parallel()
	lease := "/v1/semaphores/db/leases/1.1." + strings.Repeat("0", 32)
	for _, request := range requestsOf(lease) {
		t.Run(request[0]+" "+request[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := server.New(hung{memstore.New()}, server.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close(t.Context())
				start := time.Now()
				w, r := httptest.NewRecorder(), httptest.NewRequest(request[0], "http://localhost"+request[1], strings.NewReader(request[2]))
				r.Header.Set("Content-Type", "application/json")
				s.ServeHTTP(w, r)
				if took := time.Since(start); w.Code != 503 || took > 15*time.Second {
					t.Errorf("%d after %v: %s", w.Code, took, w.Body)
				}
			})
		})
	}
}

// hung never replies.
type hung struct{ fleet.Store }

func (hung) Inspect(ctx context.Context, _ string) (protocol.Snapshot, error) {
	<-ctx.Done()
	return protocol.Snapshot{}, ctx.Err()
}

func (hung) Administer(ctx context.Context, _ string, _ fleet.Command) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hung) List(ctx context.Context, _ protocol.ListQuery) ([]protocol.Summary, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Open(ctx context.Context, _ string, _ protocol.Config, _ protocol.Opener) (protocol.Session, protocol.Config, error) {
	<-ctx.Done()
	return 0, protocol.Config{}, ctx.Err()
}

func (hung) Apply(ctx context.Context, _ string, _ protocol.Batch) (protocol.Reply, error) {
	<-ctx.Done()
	return protocol.Reply{}, ctx.Err()
}
