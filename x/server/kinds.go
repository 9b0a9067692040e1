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

var (
	kindInvalid = &problemKind{name: "invalid-request", status: http.StatusBadRequest, title: "invalid request",
		advice: "change the request as described in the detail"}
	kindUnauthenticated = &problemKind{name: "unauthenticated", status: http.StatusUnauthorized, title: "no valid token",
		advice: "send a token of this server: Authorization: Bearer …"}
	kindNotAllowed = &problemKind{name: "not-allowed", status: http.StatusForbidden, title: "not allowed",
		advice: "ask the operator for a token with the verb and prefix that the detail names"}
	kindNoPath = &problemKind{name: "no-such-path", status: http.StatusNotFound, title: "no such path",
		advice: "/openapi.json has all paths"}
	kindNoSemaphore = &problemKind{name: "no-such-semaphore", status: http.StatusNotFound, title: "no such semaphore",
		advice: "check the name, or create the semaphore: acquire with capacity=, or PUT it"}
	kindNoLease = &problemKind{name: "no-such-lease", status: http.StatusNotFound, title: "no such lease",
		advice: "it was released, or has expired; GET /v1/semaphores/{name} lists those that are held"}
	kindMethod = &problemKind{name: "method-not-allowed", status: http.StatusMethodNotAllowed, title: "method not allowed",
		advice: "use a method of the Allow header"}
	kindSlow = &problemKind{name: "slow-request", status: http.StatusRequestTimeout, title: "the body arrived too slowly",
		advice: "send the body together with the header"}
	kindFixed = &problemKind{name: "setting-fixed", status: http.StatusConflict, title: "the setting is fixed",
		advice: "delete the semaphore and create it again, or use another name"}
	kindOtherVersion = &problemKind{name: "other-version", status: http.StatusConflict, title: "another version of the protocol",
		advice: "run servers and programs of adjacent versions"}
	kindLost = &problemKind{name: "lease-lost", status: http.StatusGone, title: "lease lost",
		advice: "stop the work that the lease was for, and acquire another one", appends: true}
	kindPrecondition = &problemKind{name: "precondition-failed", status: http.StatusPreconditionFailed, title: "precondition failed",
		advice: "GET the semaphore, and repeat the change with its current ETag"}
	kindTooLong = &problemKind{name: "request-too-large", status: http.StatusRequestEntityTooLarge, title: "the body is too large",
		advice: "send a smaller body"}
	kindTooLarge = &problemKind{name: "too-large", status: http.StatusUnprocessableEntity, title: "larger than the capacity",
		advice: "acquire fewer permits", appends: true}
	kindFull = &problemKind{name: "full", status: http.StatusTooManyRequests, title: "too few permits are free",
		advice: "retry after Retry-After, queue with wait=30s, or shed the work", appends: true}
	kindQueueFull = &problemKind{name: "queue-full", status: http.StatusTooManyRequests, title: "the queue is full",
		advice: "as many requests wait as max_waiters allows; retry after Retry-After, or shed the work", appends: true}
	kindLimit = &problemKind{name: "limit", status: http.StatusTooManyRequests, title: "a limit of the client is reached",
		advice: "the detail names the limit and what to do; the operator can raise it (limits: in the configuration)"}
	kindTimeout = &problemKind{name: "timeout", status: http.StatusTooManyRequests, title: "waited too long",
		advice: "retry, or look for leases held too long: GET /v1/semaphores/{name}", appends: true}
	kindDraining = &problemKind{name: "draining", status: http.StatusServiceUnavailable, title: "draining",
		advice: "nothing is granted until it is resumed; retry after Retry-After", retry: 10 * time.Second, appends: true}
	kindLeaving = &problemKind{name: "leaving", status: http.StatusServiceUnavailable, title: "the server is being stopped",
		advice: "retry after Retry-After, or use another server", detail: "this server is being stopped; retry, or use another one"}
	kindBusy = &problemKind{name: "busy", status: http.StatusServiceUnavailable, title: "the server is busy",
		advice: "retry after Retry-After, or use another server"}
	kindStore = &problemKind{name: "store-unavailable", status: http.StatusServiceUnavailable, title: "the store is unavailable",
		advice: "retry after Retry-After; the operator finds the cause in the server's log, and at /readyz?verbose",
		detail: "the store behind this server did not reply in time, or cannot be reached; retry later (the server's log has the cause)"}
	kindUndecided = &problemKind{name: "store-undecided", status: http.StatusServiceUnavailable, title: "the store cannot decide yet",
		advice: "the store has restarted and does not know yet which permits are held; retry after Retry-After, or queue with wait=30s",
		detail: "the store behind this server has restarted and does not know yet which permits are held; retry after Retry-After, or queue with wait=30s"}
	kindUnsupported = &problemKind{name: "unsupported", status: http.StatusNotImplemented, title: "not supported by the store",
		advice: "use another store", detail: "the store behind this server cannot do this"}
	kindInternal = &problemKind{name: "internal-error", status: http.StatusInternalServerError, title: "internal error",
		advice: "report the error, with the lines of the server's log", detail: "the server's log has the cause"}
)

// problemKinds lists all problem types.
var problemKinds = []*problemKind{
	kindInvalid, kindUnauthenticated, kindNotAllowed, kindNoPath, kindNoSemaphore, kindNoLease, kindMethod, kindSlow, kindFixed, kindOtherVersion, kindLost, kindLimit, kindUndecided,
	kindPrecondition, kindTooLong, kindTooLarge, kindFull, kindQueueFull, kindTimeout, kindDraining, kindLeaving, kindBusy, kindStore, kindUnsupported, kindInternal,
}

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
