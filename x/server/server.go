// Package server provides the permits of a fleet as a service: HTTP and JSON, remote
// procedures (Connect and gRPC), the store of Go clients (x/remotestore), and a dashboard
// at /ui/, on one port. It is an [http.Handler] over any store, for the root of a host: its
// pages do not work under another path. `sema serve` is a program around it.
//
// Several servers over one store are one service: a lease that one has granted can be
// renewed and released at another, also after the first was killed.
//
// Go programs that can reach the store need no server: see package fleet.
package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// Options configure a server.
type Options struct {
	// Declared are semaphores, or patterns of their names, that are created with a
	// configuration of the operator's; see [Declaration].
	Declared []Declaration
	// Tokens authorise clients. Without any, every client may do everything: listen on
	// loopback only, or require certificates.
	Tokens []Token
	// Logger receives failed requests and the audit of administrators; default
	// slog.Default.
	Logger *slog.Logger
	// Version is shown by /version and the metrics.
	Version string
	// Hosts are names by which clients call a server that asks for no tokens, besides
	// addresses, localhost, and names that no public site can have. Others are
	// rejected: a page of another site could make a browser call it (DNS rebinding).
	Hosts  []string
	Limits Limits
}

// A Server serves a store.
type Server struct {
	service *service
	handler http.Handler
	routes  []route
	store   *storerpc.Handler // for Go clients
	ui      *dashboard.Dashboard

	readiness readiness
	unready   atomic.Bool // balancers are to use other servers
	closing   sync.Once
	closed    error
}

// New returns a server, which closes the store in the end.
func New(store fleet.Store, o Options) (*Server, error) {
	service, err := newService(store, o)
	if err != nil {
		return nil, err
	}
	s := &Server{service: service}
	s.handler = s.mount()
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.handler.ServeHTTP(w, r)
}

// recovered logs a panic of a handler, and ends its connection alone.
func (s *Server) recovered(r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause != http.ErrAbortHandler {
		s.service.counted.panics.Inc()
		s.service.journal.error("panic", "a request panicked", "method", r.Method, "path", loggedPath(r), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// errLeaving is the cause with which waiting requests end.
var errLeaving = fmt.Errorf("%w: the server is being stopped; ask another one, or again", sema.ErrClosed)

// Unready makes /readyz fail, so that balancers use other servers. Requests are served.
func (s *Server) Unready() { s.unready.Store(true) }

// Leave makes /readyz fail, and rejects new acquires and sessions. Requests that wait go
// on.
func (s *Server) Leave() {
	s.Unready()
	s.service.leaving.Store(true)
}

// Resting reports whether no request waits, and no connection holds a lease.
func (s *Server) Resting() bool {
	return s.service.waiting.Load() == 0 && s.service.streams.Load() == 0
}

// EndStreams ends the streams of Go clients, of watchers and of the dashboard, which
// connect elsewhere or again. Those that hold a lease go on. It is for
// [http.Server.RegisterOnShutdown]: a shutdown would wait for them.
func (s *Server) EndStreams() {
	s.store.EndStreams()
	s.ui.EndStreams()
	s.service.endWatching()
}

// Close ends requests that wait, and streams, and closes the store. Leases live on. It
// may be called again.
func (s *Server) Close(context.Context) error {
	s.Leave()
	s.closing.Do(func() {
		s.EndStreams()
		s.service.end()
		s.ui.Close()
		s.closed = s.service.close()
	})
	return s.closed
}

// A route is one kind of request.
type route struct {
	method, path string
	serve        func(http.ResponseWriter, *http.Request) error
	public       bool // it is for requests without a token, too
}

func (s *Server) mount() http.Handler {
	const one, leases = "/v1/semaphores/{name}", "/v1/semaphores/{name}/leases"
	api := jsonAPI{s.service}
	s.routes = []route{
		{"POST", leases, api.acquire, false},
		{"PUT", leases + "/{id}", api.renew, false},
		{"DELETE", leases + "/{id}", api.release, false},
		{"POST", leases + "/{lease}/revoke", api.revoke, false},
		{"GET", "/v1/semaphores", api.list, false},
		{"GET", one, api.info, false},
		{"PUT", one, api.configure, false},
		{"DELETE", one, api.delete, false},
		{"POST", one + "/drain", api.drain, false},
		{"POST", one + "/resume", api.resume, false},
		{"GET", one + "/watch", api.watch, false},
		{"POST", "/v1/batch", api.batch, false},
		{"GET", "/metrics", s.metrics, false},
		{"GET", "/livez", s.livez, true},
		{"GET", "/readyz", s.readyz, true},
		{"GET", "/version", s.version, true},
		{"GET", "/openapi.json", s.openAPI, true},
		{"GET", "/problems/{problem}", s.explain, true},
		{"GET", "/{$}", s.welcome, true},
	}
	mux := http.NewServeMux()
	for _, r := range s.routes {
		mux.Handle(r.method+" "+r.path, s.endpoint(r))
	}
	s.mountRPC(mux)
	s.mountDashboard(mux)
	mux.Handle("/", s.endpoint(route{path: "other", serve: s.unrouted, public: true}))
	return mux
}

// endpoint returns the handler of a route.
func (s *Server) endpoint(at route) http.Handler {
	counted := s.service.counted.of(at)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &observed{ResponseWriter: w}
		soon(seen, r)
		if err := s.attend(seen, r, at); err != nil {
			s.service.fail(seen, r, err)
		}
		counted(seen.status, start)
	})
}

// attend identifies the caller of a request, checks what all routes have in common, and
// serves it.
func (s *Server) attend(w http.ResponseWriter, r *http.Request, at route) error {
	if !at.public {
		token, ok := bearer(r)
		c, err := s.service.identify(r, token, ok)
		if err != nil {
			return err
		}
		defer c.ended()
		r = r.WithContext(c.in(r.Context()))
	}
	if err := checkQuery(r, at); err != nil {
		return err
	}
	if err := checkConditions(r, at); err != nil {
		return err
	}
	if err := s.receive(w, r); err != nil {
		return err
	}
	return at.serve(w, r)
}

// bodyWithin bounds the time in which a client sends a body.
const bodyWithin = 10 * time.Second

// soon sets a deadline for the body, also where it is not read: the connection is kept until
// it has arrived, and a client that sends one byte at a time would hold it. The deadline must
// not outlast the body: it would end requests that wait.
func soon(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.ContentLength == 0 {
		return
	}
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(bodyWithin)); err == nil {
		r.Body = &timed{r.Body, connection}
	}
}

// A timed body removes the deadline when all of it has arrived.
type timed struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (t *timed) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err == io.EOF {
		_ = t.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// receive reads the body.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.ContentLength == 0 {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.service.options.Limits.Body))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return unread(r, err)
}

// observed records the status, default 200, and bounds the time in which a response is read:
// a client that does not read would hold memory for ever.
type observed struct {
	http.ResponseWriter
	status int
}

// readWithin bounds the time in which a client reads what was written. Tests use less.
var readWithin = 30 * time.Second

// hurry sets the deadline before a write.
func (o *observed) hurry() {
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now().Add(readWithin))
}

func (o *observed) WriteHeader(status int) {
	o.hurry()
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(b []byte) (int, error) {
	o.hurry()
	o.status = cmp.Or(o.status, http.StatusOK)
	return o.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (o *observed) Flush() { _ = o.FlushError() }

// FlushError is for [http.ResponseController]. A stream may pause after a flush, and is not
// to be ended meanwhile.
func (o *observed) FlushError() error {
	o.hurry()
	c := http.NewResponseController(o.ResponseWriter)
	err := c.Flush()
	_ = c.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap is for [http.ResponseController].
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// A stream sends parts of a response at once.
type stream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// send reports whether the client may still read.
func (s stream) send(texts ...string) bool {
	for _, text := range texts {
		if _, err := io.WriteString(s.w, text); err != nil {
			return false
		}
	}
	return s.flush.Flush() == nil
}
