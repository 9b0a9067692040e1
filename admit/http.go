package admit

import (
	"net/http"
	"time"
)

// HTTP puts a [Controller] in front of a handler, or in front of the requests of a client.
type HTTP struct {
	Controller *Controller
	// Class returns the class of a request, such as its tenant. Clients must not be able to
	// choose it freely. Default: "".
	Class func(*http.Request) string
	// Cost returns what a request takes of the budget. Default: 0.
	Cost func(*http.Request) int64
	// Weight returns the permits of the queue that a request takes. Default: 1.
	Weight func(*http.Request) int64
	// Degraded serves requests that get a cheap response, see [Config.Degrade]. Default: the
	// handler itself, which finds the Admission in the context ([FromContext]).
	Degraded http.Handler
	// Status returns the status of a rejection. Default: StatusOf.
	Status func(Reason) int
	// SlowClient bounds how long one read of a request's body, or one write of its response,
	// may take. Without it, clients that read slowly hold permits as long as they like. The
	// timeouts of the server, and the deadlines that a handler sets, still hold. Default: no
	// bound.
	SlowClient time.Duration
	// Retry configures Transport. Default: it does not retry.
	Retry Retry
}

// check panics if the fields make no sense, before the first request does.
func (h HTTP) check(op string) {
	switch {
	case h.Controller == nil:
		panic("admit: HTTP." + op + ": the field Controller is nil; use New")
	case h.SlowClient < 0:
		panic("admit: HTTP." + op + ": the field SlowClient is negative; use 0 for no bound")
	}
}

// request returns the request to admit.
func (h HTTP) request(r *http.Request) Request {
	var q Request
	if h.Class != nil {
		q.Class = h.Class(r)
	}
	if h.Cost != nil {
		q.Cost = h.Cost(r)
	}
	if h.Weight != nil {
		q.Weight = h.Weight(r)
	}
	return q
}

// Handler returns a handler that serves admitted requests by next, and rejects others by
// [Reject]. The permit is held until next returns, also if it panics, streams its response
// or has hijacked the connection. A response of 429, 503 or 504 is a dropped request, any
// other above 499 a failed one. A request whose client went away is ignored.
func (h HTTP) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("admit: HTTP.Handler: the handler is nil")
	}
	h.check("Handler")
	status := h.Status
	if status == nil {
		status = StatusOf
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := h.Controller.Admit(r.Context(), h.request(r))
		if err != nil {
			rejectAs(w, r, err, status)
			return
		}
		if a.Degraded() && h.Degraded != nil {
			defer a.Done(Ignored)
			h.Degraded.ServeHTTP(w, r)
			return
		}
		seen := &response{ResponseWriter: w, status: http.StatusOK}
		result := Failed // if next panics
		defer func() {
			seen.end()
			if seen.clientGone(r.Context()) {
				result = Ignored
			}
			a.Done(result)
		}()
		held, cancel := a.Context(r.Context())
		defer cancel()
		served := r.WithContext(held)
		if h.SlowClient > 0 {
			seen.bound = newBound(w, r, h.SlowClient)
			served.Body = &slowBody{r.Body, seen}
		}
		next.ServeHTTP(seen.writer(), served)
		result = resultOfStatus(seen.status)
	})
}

// resultOfStatus returns the result of a response.
func resultOfStatus(status int) Result {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return Dropped
	case status >= 500:
		return Failed
	}
	return OK
}
