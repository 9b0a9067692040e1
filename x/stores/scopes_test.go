package stores_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
	"github.com/sema-go/sema/internal/storetest/redistest"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/server"
)

func at(all []string, i int) string {
	if i >= len(all) {
		return "nothing"
	}
	return all[i]
}

// A scope opens semaphores.
type scope struct {
	name string
	open func(t *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore
}

// A semaphore has the methods of every scope. Those that do I/O take a context and return
// an error where the scope needs that; the adapters below are all the difference.
type semaphore struct {
	sema.Gate
	name   func() string
	text   func() string
	stats  func() sema.Stats
	resize func(ctx context.Context, capacity int64) error
	drain  func(ctx context.Context) error
	resume func(ctx context.Context) error
	close  func(ctx context.Context) error
}

func openProcess(_ *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore {
	all := []sema.Option{sema.Name(name)}
	for _, o := range opts {
		all = append(all, o)
	}
	s := sema.New(capacity, all...)
	return semaphore{
		Gate: s, name: s.Name, text: s.String, stats: s.Stats,
		resize: func(_ context.Context, n int64) error { s.Resize(n); return nil },
		drain:  func(ctx context.Context) error { return s.Drain(ctx) },
		resume: func(context.Context) error { s.Resume(); return nil },
		close:  func(context.Context) error { s.Close(); return nil },
	}
}

func scopes(t *testing.T) []scope {
	redis, postgres, etcd := redistest.Start(t).URL(), pgtest.Start(t).URL(), etcdtest.Start(t, 1).URL()
	return []scope{
		{"host", func(t *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore {
			all := []host.Option{host.Dir(t.TempDir())}
			for _, o := range opts {
				all = append(all, o)
			}
			s, err := host.Open(name, capacity, all...)
			must(t, err)
			return semaphore{
				Gate: s, name: s.Name, text: s.String, stats: s.Stats,
				resize: s.Resize, drain: s.Drain, resume: s.Resume, close: func(context.Context) error { return s.Close() },
			}
		}},
		{"fair queue", func(_ *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore {
			all := []wfq.Option{sema.Name(name)}
			for _, o := range opts {
				all = append(all, o)
			}
			q := wfq.New(capacity, all...)
			return semaphore{
				Gate: q, name: q.Name, text: q.String, stats: q.Stats,
				resize: func(_ context.Context, n int64) error { q.Resize(n); return nil },
				drain:  q.Drain,
				resume: func(context.Context) error { q.Resume(); return nil },
				close:  func(context.Context) error { return q.Close() },
			}
		}},
		{"fleet, memory", overStore(func(*testing.T) string { return "" })},
		{"fleet, SQLite", overStore(func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "sema.db") })},
		{"fleet, Redis", overStore(func(*testing.T) string { return redis })},
		{"fleet, PostgreSQL", overStore(func(*testing.T) string { return postgres })},
		{"fleet, etcd", overStore(func(*testing.T) string { return etcd })},
		{"fleet, service", overStore(serve)},
	}
}

// serve starts a service and returns its URL.
func serve(t *testing.T) string {
	s, err := server.New(memstore.New(), server.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	listening := httptest.NewUnstartedServer(s)
	listening.Config.Protocols = new(http.Protocols)
	listening.Config.Protocols.SetHTTP1(true)
	listening.Config.Protocols.SetUnencryptedHTTP2(true)
	listening.Start()
	t.Cleanup(listening.Close)
	return "sema://" + listening.Listener.Addr().String()
}

func overStore(url func(t *testing.T) string) func(t *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore {
	return func(t *testing.T, name string, capacity int64, opts ...sema.SharedOption) semaphore {
		client := fleet.New(memstore.New())
		if at := url(t); at != "" {
			var err error
			client, err = fleet.Open(t.Context(), at)
			must(t, err)
		}
		t.Cleanup(func() { _ = client.Close(context.Background(), fleet.CloseRelease) })
		var all []fleet.Option
		for _, o := range opts {
			all = append(all, o)
		}
		s, err := client.Semaphore(name, capacity, all...)
		must(t, err)
		return semaphore{
			Gate: s, name: s.Name, text: s.String, stats: func() sema.Stats { return s.Stats().Stats },
			resize: s.Resize, drain: s.Drain, resume: s.Resume, close: func(ctx context.Context) error { return s.Close(ctx) },
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
