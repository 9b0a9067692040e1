package server

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// problemPath is the prefix of every problem type. The types can be fetched.
const problemPath = "/problems/"

// A problemKind is one type of problem.
type problemKind struct {
	name    string
	status  int
	title   string
	advice  string        // what a client should do
	detail  string        // replaces the error's text, which is only logged
	retry   time.Duration // Retry-After if nothing better is known; 0: 1s
	appends bool          // the detail of a problem ends with the advice
}

// problemKinds lists all problem types.
var problemKinds []*problemKind

// newKind adds a problem type to problemKinds.
func newKind(k problemKind) *problemKind {
	problemKinds = append(problemKinds, &k)
	return &k
}

var (
	kindInvalid = newKind(problemKind{name: "invalid-request", status: http.StatusBadRequest, title: "invalid request",
		advice: "change the request as described in the detail"})
	kindUnauthenticated = newKind(problemKind{name: "unauthenticated", status: http.StatusUnauthorized, title: "no valid token",
		advice: "send a token of this server: Authorization: Bearer …"})
	kindNotAllowed = newKind(problemKind{name: "not-allowed", status: http.StatusForbidden, title: "not allowed",
		advice: "ask the operator for a token with the verb and prefix that the detail names"})
	kindNoPath = newKind(problemKind{name: "no-such-path", status: http.StatusNotFound, title: "no such path",
		advice: "/openapi.json has all paths"})
	kindNoSemaphore = newKind(problemKind{name: "no-such-semaphore", status: http.StatusNotFound, title: "no such semaphore",
		advice: "check the name, or create the semaphore: acquire with capacity=, or PUT it"})
	kindNoLease = newKind(problemKind{name: "no-such-lease", status: http.StatusNotFound, title: "no such lease",
		advice: "it was released, or has expired; GET /v1/semaphores/{name} lists those that are held"})
	kindMethod = newKind(problemKind{name: "method-not-allowed", status: http.StatusMethodNotAllowed, title: "method not allowed",
		advice: "use a method of the Allow header"})
	kindSlow = newKind(problemKind{name: "slow-request", status: http.StatusRequestTimeout, title: "the body arrived too slowly",
		advice: "send the body together with the header"})
	kindFixed = newKind(problemKind{name: "setting-fixed", status: http.StatusConflict, title: "the setting is fixed",
		advice: "delete the semaphore and create it again, or use another name"})
	kindOtherVersion = newKind(problemKind{name: "other-version", status: http.StatusConflict, title: "another version of the protocol",
		advice: "run servers and programs of adjacent versions"})
	kindLost = newKind(problemKind{name: "lease-lost", status: http.StatusGone, title: "lease lost",
		advice: "stop the work that the lease was for, and acquire another one", appends: true})
	kindPrecondition = newKind(problemKind{name: "precondition-failed", status: http.StatusPreconditionFailed, title: "precondition failed",
		advice: "GET the semaphore, and repeat the change with its current ETag"})
	kindTooLong = newKind(problemKind{name: "request-too-large", status: http.StatusRequestEntityTooLarge, title: "the body is too large",
		advice: "send a smaller body"})
	kindTooLarge = newKind(problemKind{name: "too-large", status: http.StatusUnprocessableEntity, title: "larger than the capacity",
		advice: "acquire fewer permits", appends: true})
	kindFull = newKind(problemKind{name: "full", status: http.StatusTooManyRequests, title: "too few permits are free",
		advice: "retry after Retry-After, queue with wait=30s, or shed the work", appends: true})
	kindQueueFull = newKind(problemKind{name: "queue-full", status: http.StatusTooManyRequests, title: "the queue is full",
		advice: "as many requests wait as max_waiters allows; retry after Retry-After, or shed the work", appends: true})
	kindLimit = newKind(problemKind{name: "limit", status: http.StatusTooManyRequests, title: "a limit of the client is reached",
		advice: "the detail names the limit and what to do; the operator can raise it (limits: in the configuration)"})
	kindTimeout = newKind(problemKind{name: "timeout", status: http.StatusTooManyRequests, title: "waited too long",
		advice: "retry, or look for leases held too long: GET /v1/semaphores/{name}", appends: true})
	kindDraining = newKind(problemKind{name: "draining", status: http.StatusServiceUnavailable, title: "draining",
		advice: "nothing is granted until it is resumed; retry after Retry-After", retry: 10 * time.Second, appends: true})
	kindLeaving = newKind(problemKind{name: "leaving", status: http.StatusServiceUnavailable, title: "the server is being stopped",
		advice: "retry after Retry-After, or use another server", detail: "this server is being stopped; retry, or use another one"})
	kindBusy = newKind(problemKind{name: "busy", status: http.StatusServiceUnavailable, title: "the server is busy",
		advice: "retry after Retry-After, or use another server"})
	kindStore = newKind(problemKind{name: "store-unavailable", status: http.StatusServiceUnavailable, title: "the store is unavailable",
		advice: "retry after Retry-After; the operator finds the cause in the server's log, and at /readyz?verbose",
		detail: "the store behind this server did not reply in time, or cannot be reached; retry later (the server's log has the cause)"})
	kindUndecided = newKind(problemKind{name: "store-undecided", status: http.StatusServiceUnavailable, title: "the store cannot decide yet",
		advice: "the store has restarted and does not know yet which permits are held; retry after Retry-After, or queue with wait=30s",
		detail: "the store behind this server has restarted and does not know yet which permits are held; retry after Retry-After, or queue with wait=30s"})
	kindUnsupported = newKind(problemKind{name: "unsupported", status: http.StatusNotImplemented, title: "not supported by the store",
		advice: "use another store", detail: "the store behind this server cannot do this"})
	kindInternal = newKind(problemKind{name: "internal-error", status: http.StatusInternalServerError, title: "internal error",
		advice: "report the error, with the lines of the server's log", detail: "the server's log has the cause"})
)

// kindByStatus maps a status to the type of problems that have none.
var kindByStatus = map[int]*problemKind{
	http.StatusBadRequest: kindInvalid, http.StatusUnauthorized: kindUnauthenticated, http.StatusForbidden: kindNotAllowed, http.StatusNotFound: kindNoPath,
	http.StatusRequestTimeout: kindSlow, http.StatusRequestEntityTooLarge: kindTooLong, http.StatusInternalServerError: kindInternal,
}

// kindOf returns the problem type of an error. The first match wins: some errors are
// special cases of later ones.
func kindOf(err error) *problemKind {
	for _, k := range []struct {
		is   error
		kind *problemKind
	}{
		{errLeaving, kindLeaving},
		{sema.ErrDraining, kindDraining},
		{sema.ErrUnavailable, kindStore},
		{sema.ErrClosed, kindLeaving},
		{sema.ErrQueueFull, kindQueueFull},
		{sema.ErrFull, kindFull},
		{sema.ErrTimeout, kindTimeout},
		{sema.ErrTooLarge, kindTooLarge},
		{sema.ErrLost, kindLost},
		{sema.ErrInvalid, kindInvalid},
		{protocol.ErrConflict, kindPrecondition},
		{protocol.ErrVersion, kindOtherVersion},
		{errors.ErrUnsupported, kindUnsupported},
		{fs.ErrNotExist, kindNoSemaphore},
		{fs.ErrPermission, kindNotAllowed},
		{context.DeadlineExceeded, kindStore},
	} {
		if errors.Is(err, k.is) {
			return k.kind
		}
	}
	return kindInternal
}

// explain responds with the description of a problem type.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	for _, k := range problemKinds {
		if k.name == r.PathValue("problem") {
			return respond(w, http.StatusOK, kindText{problemPath + k.name, k.title, k.status, k.advice})
		}
	}
	return newProblem(kindNoPath, "unknown problem type %q", r.PathValue("problem"))
}

type kindText struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Advice string `json:"advice"`
}
