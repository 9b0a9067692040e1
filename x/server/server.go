// Package server is the fleet's permits as a service: HTTP and JSON for people with
// curl, remote procedures for programs (x/remotestore), and a dashboard for browsers
// at /ui/, on one port. It is an [http.Handler] over any engine, for the root of a
// host: its pages do not work under another path. `sema serve` is a program around it.
//
// Several servers over one engine are one service: a lease that one has granted can
// be renewed and released at another, also after the first was killed.
//
// Go programs that can reach the engine need no server: see package fleet.
package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// Options are how a server serves.
type Options struct {
	// Declared are semaphores, or patterns of their names, that are made with a
	// configuration of the operator's; see [Declaration].
	Declared []Declaration
	// Tokens are who may do what. Without any, everybody may do everything: listen
	// on loopback only, or demand certificates.
	Tokens []Token
	// Logger is told of requests that fail, and of what administrators do;
	// slog.Default unless told.
	Logger *slog.Logger
	// Version is told by /version and the metrics.
	Version string
	// Hosts are names by which clients call a server that asks for no tokens, besides
	// addresses, localhost, and names that no public site can have. Others are
	// rejected: a page of another site could make a browser call it (DNS rebinding).
	Hosts  []string
	Limits Limits
}

// A Server serves an engine.
type Server struct {
	options  Options
	log      *slog.Logger
	journal  *journal
	store    *catalog
	client   *fleet.Client // of administrators
	desk     *lender
	declared declarations
	tokens   atomic.Pointer[tokens]
	accounts *accounts
	programs *programs
	counted  *metrics
	handler  http.Handler
	routes   []route
	engine   *storerpc.Handler // for programs

	examination examination
	readiness   readiness
	people      *dashboard.Dashboard

	crossOrigin http.CrossOriginProtection

	waiting, streams atomic.Int64
	outageLogged     atomic.Int64    // when an outage of the store was last logged, in nanoseconds since 1970
	unready          atomic.Bool     // balancers are told to look elsewhere
	leaving          atomic.Bool     // nobody new is taken in
	life, looking    context.Context // of requests; of those who only look
	end, endLooking  context.CancelFunc
	work             sync.WaitGroup // upkeep
	closing          sync.Once
	closed           error
}

// New makes a server, which closes the store in the end.
func New(store fleet.Store, o Options) (*Server, error) {
	s := &Server{options: o, log: o.Logger}
	s.options.Limits = o.Limits.withDefaults()
	if s.log == nil {
		s.log = slog.Default()
	}
	var bad [2]error
	s.declared, bad[0] = newDeclarations(o.Declared)
	known, invalid := newTokens(o.Tokens)
	bad[1] = invalid
	if err := errors.Join(o.Limits.Check(), bad[0], bad[1]); err != nil {
		return nil, err
	}
	s.tokens.Store(known)
	s.journal = newJournal(s.log)
	s.accounts, s.programs = newAccounts(s), newPrograms(s)
	s.life, s.end = context.WithCancel(context.Background())
	s.looking, s.endLooking = context.WithCancel(s.life)
	s.counted = newMetrics(s)
	s.store = newCatalog(timedStore{store}, s)
	s.client, s.desk = fleet.New(s.store), newLender(s)
	s.handler = s.mount()
	s.work.Go(s.upkeep)
	s.work.Go(s.reap)
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
		s.counted.panics.Inc()
		s.journal.error("panic", "a request panicked", "method", r.Method, "path", loggedPath(r), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// errLeaving is why requests that wait are ended.
var errLeaving = fmt.Errorf("%w: the server is being stopped; ask another one, or again", sema.ErrClosed)

// Unready has /readyz say that this server is about to go. Who comes is served.
func (s *Server) Unready() { s.unready.Store(true) }

// Leave has /readyz say that this server is about to go, and refuses who is new.
// Those who wait go on.
func (s *Server) Leave() {
	s.Unready()
	s.leaving.Store(true)
}

// Resting reports whether nobody waits, and nobody holds a lease by a connection.
func (s *Server) Resting() bool { return s.waiting.Load() == 0 && s.streams.Load() == 0 }

// EndStreams ends the streams of programs and of those who watch, which go elsewhere
// or come back, and of the dashboard. Those that hold a lease go on. It is for
// [http.Server.RegisterOnShutdown]: a shutdown would wait for them.
func (s *Server) EndStreams() {
	s.engine.EndStreams()
	s.people.EndStreams()
	s.endLooking()
}

// Close ends requests that still wait, and streams, and lets go of the engine.
// Leases live on. It may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.Leave()
	s.closing.Do(func() {
		s.EndStreams()
		s.end()
		s.work.Wait()
		s.people.Close()
		s.desk.Close()
		s.closed = s.client.Close(ctx, fleet.CloseAbandon)
	})
	return s.closed
}

// A route is one kind of request.
type route struct {
	method, path string
	verb         Verb // that it needs; "" if it is for everybody
	serve        func(http.ResponseWriter, *http.Request) error
	reads        bool // it sends what may be large
}

func (s *Server) mount() http.Handler {
	const one, lease = "/v1/semaphores/{name}", "/v1/semaphores/{name}/leases/{lease}"
	s.routes = []route{
		{"POST", one + "/leases", Acquire, s.acquire, false},
		{"PUT", lease, Acquire, s.renew, false},
		{"DELETE", lease, Acquire, s.release, false},
		{"POST", one + "/leases/{fence}/revoke", Admin, s.revoke, false},
		{"GET", "/v1/semaphores", Read, s.listPage, true},
		{"GET", one, Read, s.inspectPage, true},
		{"PUT", one, Admin, s.configure, false},
		{"DELETE", one, Admin, s.remove, false},
		{"POST", one + "/drain", Admin, s.drain, false},
		{"POST", one + "/resume", Admin, s.resume, false},
		{"GET", one + "/watch", Read, s.watch, false},
		{"POST", "/v1/batch", Acquire, s.batch, false},
		{"GET", "/livez", "", s.livez, false},
		{"GET", "/readyz", "", s.readyz, false},
		{"GET", "/version", "", s.version, false},
		{"GET", "/openapi.json", "", s.openAPI, false},
		{"GET", "/problems/{problem}", "", s.explain, false},
		{"GET", "/metrics", Read, s.metrics, false},
		{"GET", "/{$}", "", s.welcome, false},
	}
	mux := http.NewServeMux()
	for _, r := range s.routes {
		mux.Handle(r.method+" "+r.path, s.endpoint(r))
	}
	s.mountRPC(mux)
	s.mountDashboard(mux)
	mux.Handle("/", s.endpoint(route{path: "other", serve: s.unrouted}))
	return mux
}

// endpoint is what is done for every request of a route.
func (s *Server) endpoint(at route) http.Handler {
	counted, named := s.counted.of(at), strings.Contains(at.path, "{name}")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &observed{ResponseWriter: w}
		soon(seen, r)
		if err := s.attend(seen, r, at, named); err != nil {
			s.fail(seen, r, err)
		}
		counted(seen.status, start)
	})
}

func (s *Server) attend(w http.ResponseWriter, r *http.Request, at route, named bool) error {
	if at.verb != "" {
		who, err := s.admit(r, at.verb)
		if err != nil {
			return err
		}
		r = r.WithContext(who.in(r.Context()))
	}
	if named {
		if err := fleet.CheckName(r.PathValue("name")); err != nil {
			return err
		}
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
	if at.reads {
		done, err := s.accounts.read(r.Context(), 1)
		if err != nil {
			return err
		}
		defer done()
	}
	return at.serve(w, r)
}

// bodyWithin is how long a client may take to send what it has to say.
const bodyWithin = 10 * time.Second

// soon has the body come within that time, so that nobody sends one byte at a time
// while others wait, also where it is not read: the connection is kept until it has
// come. The deadline must not outlast it: it would end requests that wait.
func soon(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.ContentLength == 0 {
		return
	}
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(bodyWithin)); err == nil {
		r.Body = &timed{r.Body, connection}
	}
}

// A timed body has no deadline any more when all of it has come.
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.Limits.Body))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return unread(r, err)
}

// observed notes the status, which is 200 unless told, and has answers be read
// within some time: who asks and does not read would hold memory for ever.
type observed struct {
	http.ResponseWriter
	status int
}

// readWithin is how long a client may take to read what it is told. Tests have less
// patience.
var readWithin = 30 * time.Second

// hurry is before something is written, and what was is to be read by then.
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

// Flush is for [http.Flusher].
func (o *observed) Flush() { _ = o.FlushError() }

// FlushError is for [http.ResponseController]. Who flushes may be silent for long
// before it goes on, and is not to be cut off meanwhile.
func (o *observed) FlushError() error {
	o.hurry()
	c := http.NewResponseController(o.ResponseWriter)
	err := c.Flush()
	_ = c.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap is for [http.ResponseController].
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// stream counts a connection that stays open for the caller, until leave is called.
func (s *Server) stream(ctx context.Context) (leave func(), err error) {
	return s.enter(ctx, streams, &s.streams)
}

// wait counts a request of the caller's that waits, until leave is called.
func (s *Server) wait(ctx context.Context) (leave func(), err error) {
	return s.enter(ctx, waiting, &s.waiting)
}

func (s *Server) enter(ctx context.Context, r resource, here *atomic.Int64) (func(), error) {
	one := s.accounts.caller(ctx)
	if err := s.accounts.take(one, r); err != nil {
		return nil, err
	}
	here.Add(1)
	return func() {
		here.Add(-1)
		s.accounts.give(one, r)
	}, nil
}

// until is a request's context, that ends with one of the server's as well.
func until(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(errLeaving) })
	return ctx, func() { stop(); cancel(nil) }
}
