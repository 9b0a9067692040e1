// Package server provides a fleet's permits as a service on one port: HTTP and JSON, RPC
// (Connect and gRPC), the store of Go clients (x/remotestore), and a dashboard at /ui/.
// A [Server] is an [http.Handler] over any store. Mount it at the root of a host: its pages
// do not work under another path. `sema serve` runs it as a program.
//
// Several servers over one store form one service: a lease that one server granted can be
// renewed and released at another, also after the first server was killed.
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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// Options configures a server.
type Options struct {
	// Declared lists semaphores, or patterns of semaphore names, that are created with the
	// operator's configuration; see [Declaration].
	Declared []Declaration
	// Tokens authorise clients. If there are none, every client may do everything: then
	// listen on loopback only, or require client certificates.
	Tokens []Token
	// Logger receives failed requests and the audit log; default slog.Default.
	Logger *slog.Logger
	// Backend is the label of that name in the metrics, such as redis; default "store".
	Backend string
	// History is the directory that keeps the history of semaphores across restarts; "" keeps it in
	// memory. Only one server at a time may use a directory.
	History string
	// Version is reported by /version and by the metrics.
	Version string
	// Documents is served at /docs/, without a token; nil: nothing is.
	Documents http.Handler
	// Hosts lists further host names that clients may use to call a server that requires no
	// tokens. IP addresses and localhost are always accepted, and names that no public site
	// can have are accepted except on loopback. Other names are rejected, because a page of
	// another site could make a browser call the server (DNS rebinding).
	Hosts  []string
	Limits Limits
	// Demo makes the dashboard state that the traffic is a demonstration.
	Demo bool
}

// A Server serves a store.
type Server struct {
	service *service
	handler http.Handler
	routes  []route
	store   *storerpc.Handler // for Go clients
	ui      *dashboard.Dashboard

	readiness readiness
	unready   atomic.Bool // /readyz fails, so that load balancers use other servers
	closing   sync.Once
	closed    error
}

// New returns a server over a store. Close closes the store.
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
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(r, cause)
		}
	}()
	w.Header()["X-Content-Type-Options"] = valueNosniff
	s.handler.ServeHTTP(w, r)
}

// Values of headers that most responses have. They are shared: use them only for assignments.
var (
	valueNosniff = []string{"nosniff"}
	valueJSON    = []string{"application/json"}
	valueNoStore = []string{"no-store"}
)

// panicked logs a handler's panic and aborts only the connection of that request.
func (s *Server) panicked(r *http.Request, cause any) {
	if cause != http.ErrAbortHandler {
		s.service.counted.panics.Inc()
		s.service.journal.error("panic", "a request panicked", "method", r.Method, "path", loggedPath(r), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// errLeaving is the cancellation cause of waiting requests and streams when the server is
// closed, and the error of requests that a stopping server rejects.
var errLeaving = fmt.Errorf("%w: the server is being stopped; retry, or use another server", sema.ErrClosed)

// Unready makes /readyz fail, so that load balancers use other servers. Requests are still
// served.
func (s *Server) Unready() { s.unready.Store(true) }

// Leave makes /readyz fail and rejects new acquires and sessions. Requests that already
// wait continue to wait.
func (s *Server) Leave() {
	s.Unready()
	s.service.leaving.Store(true)
}

// Resting reports whether no request is waiting and no connection holds a lease.
func (s *Server) Resting() bool {
	return s.service.waiting.Load() == 0 && s.service.streams.Load() == 0
}

// EndStreams ends the streams of Go clients, watchers and the dashboard; their clients
// reconnect, here or at another server. Streams that hold a lease continue. Register it
// with [http.Server.RegisterOnShutdown]: a shutdown waits for open streams.
func (s *Server) EndStreams() {
	s.store.EndStreams()
	s.ui.EndStreams()
	s.service.endWatching()
}

// Close ends waiting requests and streams, and closes the store. Leases stay in the store.
// Close may be called more than once.
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

// A route is one method and path of the API.
type route struct {
	method, path string
	serve        func(http.ResponseWriter, *http.Request) error
	public       bool // requests need no token
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
		{"GET", one + "/history", api.history, false},
		{"GET", one + "/advice", api.advice, false},
		{"GET", "/v1/deadlocks", api.deadlocks, false},
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
	s.mountPlayground(mux)
	s.mountDocuments(mux, s.service.options.Documents)
	mux.Handle("/", s.endpoint(route{path: "other", serve: s.unrouted, public: true}))
	return mux
}

// endpoint returns the handler of a route. It responds with an error that the route returns.
func (s *Server) endpoint(at route) http.Handler {
	return s.observe(at.method+" "+at.path, func(w *responseWriter, r *http.Request) {
		if err := s.handle(w, r, at); err != nil {
			s.service.fail(w, r, err)
		}
	})
}

// observe wraps a handler: it counts requests and their durations under a route name, and
// bounds the time in which a client sends the body and reads the response.
func (s *Server) observe(name string, serve func(*responseWriter, *http.Request)) http.Handler {
	counted := s.service.counted
	took := counted.took.WithLabelValues(name)
	byStatus := &statusCounters{all: counted.requests, route: name}
	byStatus.of(http.StatusOK) // so that the series exists before the first request
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &responseWriter{ResponseWriter: w}
		if r.ContentLength != 0 {
			setBodyDeadline(seen, r)
		}
		serve(seen, r)
		took.Observe(time.Since(start).Seconds())
		byStatus.of(cmp.Or(seen.status, http.StatusOK)).Inc() // net/http sends 200 if nothing was written
	})
}

// statusCounters are the counters of a route by status. It caches those of the 2xx statuses,
// which nearly all requests have.
type statusCounters struct {
	all     *prometheus.CounterVec
	route   string
	success [100]atomic.Pointer[prometheus.Counter]
}

func (c *statusCounters) of(status int) prometheus.Counter {
	if status/100 != 2 {
		return c.all.WithLabelValues(c.route, strconv.Itoa(status))
	}
	cached := &c.success[status-http.StatusOK]
	if known := cached.Load(); known != nil {
		return *known
	}
	counter := c.all.WithLabelValues(c.route, strconv.Itoa(status))
	cached.Store(&counter)
	return counter
}

// handle identifies the caller of a request, runs the checks that all routes share, and
// calls the route.
func (s *Server) handle(w *responseWriter, r *http.Request, at route) error {
	if !at.public {
		token, ok := bearer(r)
		c, err := s.service.identify(r, token, ok)
		if err != nil {
			return err
		}
		defer c.finish()
		r = r.WithContext(c.withCall(r.Context()))
	}
	if r.URL.RawQuery != "" {
		if err := checkQuery(r, at); err != nil {
			return err
		}
	}
	if err := checkConditions(r, at); err != nil {
		return err
	}
	if r.ContentLength != 0 {
		if err := s.receive(w, r); err != nil {
			return err
		}
	}
	return at.serve(w, r)
}

// bodyTimeout bounds the time in which a client sends a request body.
const bodyTimeout = 10 * time.Second

// setBodyDeadline sets a read deadline for the body, also if no handler reads it. net/http
// keeps the connection until the body has arrived: a client that sends one byte at a time
// would hold the connection. The deadline is removed at the end of the body, because it
// would otherwise end requests that wait.
func setBodyDeadline(w *responseWriter, r *http.Request) {
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		r.Body = &deadlineBody{r.Body, connection}
	}
}

// A deadlineBody removes the read deadline at the end of the body.
type deadlineBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (t *deadlineBody) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err == io.EOF {
		_ = t.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// receive reads the body of a request that has one.
func (s *Server) receive(w *responseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.service.options.Limits.Body))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bodyError(r, err)
}

// A responseWriter records the status of a response and bounds the time in which the client reads
// the response: a client that does not read would hold memory for ever.
type responseWriter struct {
	http.ResponseWriter
	status   int       // 0: nothing was written
	deadline time.Time // the write deadline of the connection; zero: none is set
}

// readTimeout bounds the time in which a client reads what was written. Tests set a shorter
// time.
var readTimeout = 30 * time.Second

// setWriteDeadline sets the write deadline before a write, unless it was just set: a response
// usually has a header and one write.
func (o *responseWriter) setWriteDeadline() {
	deadline := time.Now().Add(readTimeout)
	if deadline.Sub(o.deadline) < readTimeout/30 {
		return
	}
	o.deadline = deadline
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(deadline)
}

func (o *responseWriter) WriteHeader(status int) {
	o.setWriteDeadline()
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *responseWriter) Write(b []byte) (int, error) {
	o.setWriteDeadline()
	o.status = cmp.Or(o.status, http.StatusOK)
	return o.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (o *responseWriter) Flush() { _ = o.FlushError() }

// FlushError implements the interface that [http.ResponseController] looks for. It removes
// the write deadline after the flush, because a stream may pause there.
func (o *responseWriter) FlushError() error {
	o.setWriteDeadline()
	c := http.NewResponseController(o.ResponseWriter)
	err := c.Flush()
	o.deadline = time.Time{}
	_ = c.SetWriteDeadline(o.deadline)
	return err
}

// Unwrap implements the interface that [http.ResponseController] looks for.
func (o *responseWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// A stream writes parts of a response and flushes each of them.
type stream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// send writes and flushes texts. It reports false once writing has failed.
func (s stream) send(texts ...string) bool {
	for _, text := range texts {
		if _, err := io.WriteString(s.w, text); err != nil {
			return false
		}
	}
	return s.flush.Flush() == nil
}
