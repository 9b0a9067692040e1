package remotestore

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/redisstore"
	"github.com/sema-go/sema/x/sqlitestore"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // the tests mostly wait
	proctest.Main(leakCheck{m}, map[string]func(*proctest.Child){"server": serveUntilKilled})
}

// leakCheck runs the tests and fails if goroutines remain.
type leakCheck struct{ *testing.M }

func (l leakCheck) Run() int {
	code := l.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
	return code
}

var ctx = context.Background()

const testTTL = protocol.Micros(15 * time.Second / time.Microsecond)

// openBackend opens the store of a server.
func openBackend(at string) (fleet.Store, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "mem":
		return memstore.New(), nil
	case "redis":
		return redisstore.Open(ctx, redisstore.Options{Addresses: []string{u.Host}, Logger: slog.New(slog.DiscardHandler)})
	}
	return sqlitestore.Open(u.Path, sqlitestore.Options{Normal: u.Query().Get("synchronous") == "normal"})
}

// startServer starts a server in its own process. The process sends its address.
func startServer(t testing.TB, address, backend string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, "server", address, backend)
}

// serveUntilKilled runs in that process.
func serveUntilKilled(c *proctest.Child) {
	backend, err := openBackend(c.Args[1])
	c.Must(err)
	l, err := net.Listen("tcp", c.Args[0])
	c.Must(err)
	s := newService(backend, serving{})
	c.Send("%s", l.Addr())
	c.Must(s.http.Serve(l))
}

// A service serves a store.
type service struct {
	address string
	http    *http.Server
	handler *storerpc.Handler
	served  chan error
}

// serving configures a service.
type serving struct {
	address   string                                        // "": any port on loopback
	wrap      func(http.Handler) http.Handler               // middleware; nil: none
	secure    *storetest.Authority                          // nil: without TLS
	issue     func(storetest.TB, string) (cert, key string) // issues the server's certificate; nil: a valid one
	wantCert  bool                                          // require a client certificate
	heartbeat time.Duration                                 // 0: the handler's default
	lifetime  time.Duration                                 // 0: the handler's default
}

func newService(store fleet.Store, how serving) *service {
	mux := http.NewServeMux()
	path, handler := storerpc.NewHandler(store)
	if how.heartbeat != 0 {
		handler.Heartbeat = how.heartbeat
	}
	if how.lifetime != 0 {
		handler.Lifetime = how.lifetime
	}
	mux.Handle(path, handler)
	s := &service{handler: handler, served: make(chan error, 1), http: &http.Server{Handler: mux, Protocols: &http.Protocols{}}}
	if how.wrap != nil {
		s.http.Handler = how.wrap(mux)
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	s.http.ErrorLog = log.New(io.Discard, "", 0)
	s.http.RegisterOnShutdown(handler.EndStreams)
	return s
}

// serve serves a store until the test ends.
func serve(t testing.TB, store fleet.Store, how serving) *service {
	t.Helper()
	s := newService(store, how)
	address := how.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	if how.secure == nil {
		go func() { s.served <- s.http.Serve(l) }()
	} else {
		s.http.TLSConfig = serverTLS(t, how)
		go func() { s.served <- s.http.ServeTLS(l, "", "") }()
	}
	t.Cleanup(func() { s.kill(t) })
	return s
}

// dropReplies returns middleware that serves requests and drops the replies while set is
// true.
func dropReplies(set *atomic.Bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !set.Load() {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}
}

// kill closes all connections at once.
func (s *service) kill(t testing.TB) {
	t.Helper()
	s.handler.EndStreams()
	if err := s.http.Close(); err != nil {
		t.Error(err)
	}
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	s.served <- http.ErrServerClosed // for the next call of kill
}

// openAt opens a store that is closed when the test ends.
func openAt(t testing.TB, hosts ...string) *Store {
	t.Helper()
	return openBy(t, Options{Hosts: hosts})
}

// openBy opens a store without a check, so that its calls return the errors. The store is
// closed when the test ends.
func openBy(t testing.TB, o Options) *Store {
	t.Helper()
	o.Lazy = true
	s, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// limited returns a context that ends after d, or with the test.
func limited(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// await waits for a condition.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true within a minute: %s", what)
		}
	}
}

// open opens a session.
func open(t testing.TB, s fleet.Store, name string, c protocol.Config) protocol.Session {
	t.Helper()
	if c.TTL == 0 {
		c.TTL = testTTL
	}
	c.Protocol = protocol.Version
	id, _, err := s.Open(ctx, name, c, sessiontest.Opener("instance of "+t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Details: &protocol.Details{Holder: "for a test"}}
}

// serverTLS returns the TLS configuration of a server.
func serverTLS(t testing.TB, how serving) *tls.Config {
	t.Helper()
	c := how.secure.Client(t) // its certificate is valid for servers as well
	if how.issue != nil {
		pair, err := tls.LoadX509KeyPair(how.issue(t, "server"))
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if how.wantCert {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, c.RootCAs
	}
	return c
}

// A listening is a call of Listen in a goroutine.
type listening struct {
	stop func() error // ends the call and returns its error
}

func goListen(t testing.TB, s fleet.Store, instance string, notify func(string)) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, instance, notify) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return &listening{stop}
}
