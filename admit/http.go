package admit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
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
	// may take. Without it, clients that read slowly hold permits as long as they like.
	// Default: no bound.
	SlowClient time.Duration
	// Retry configures Transport. Default: it does not retry.
	Retry Retry
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
		defer a.Done(Failed) // next has panicked
		if a.Degraded() && h.Degraded != nil {
			h.Degraded.ServeHTTP(w, r)
			a.Done(Ignored)
			return
		}
		held, cancel := a.Context(r.Context())
		defer cancel()
		seen := &response{ResponseWriter: w, status: http.StatusOK}
		r = r.WithContext(context.WithValue(held, admissionKey{}, a))
		if h.SlowClient > 0 {
			seen.slow(h.SlowClient)
			r.Body = &slowBody{r.Body, seen}
		}
		next.ServeHTTP(seen.writer(), r)
		a.Done(seen.result(r.Context()))
	})
}

type admissionKey struct{}

func withAdmission(ctx context.Context, a Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// FromContext returns the admission of the request that a handler, or a function of
// [Controller.Do], serves: to settle its cost, or to see whether it is degraded. Without one
// it returns the zero Admission.
func FromContext(ctx context.Context) Admission {
	a, _ := ctx.Value(admissionKey{}).(Admission)
	return a
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

// A response is a ResponseWriter that notes the status, and bounds how long a write takes.
type response struct {
	http.ResponseWriter
	status  int
	written bool
	control *http.ResponseController // nil: writes take as long as they take
	limit   time.Duration
	broken  bool // a read or a write took too long, or failed
}

func (w *response) slow(limit time.Duration) {
	w.control, w.limit = http.NewResponseController(w.ResponseWriter), limit
}

// result returns the result of a request that was served. A client that went away or is
// too slow is no failure of the service.
func (w *response) result(ctx context.Context) Result {
	if w.broken || errors.Is(ctx.Err(), context.Canceled) {
		return Ignored
	}
	return resultOfStatus(w.status)
}

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if !w.written && status >= 200 { // 1xx are no final status
		w.status, w.written = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	w.written = true
	w.expectWrite()
	n, err := w.ResponseWriter.Write(p)
	w.broken = w.broken || err != nil
	return n, err
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without a copy. With a bound
// on writes it copies, since the bound is that of each write.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	w.written = true
	if from, ok := w.ResponseWriter.(io.ReaderFrom); ok && w.control == nil {
		n, err := from.ReadFrom(r)
		w.broken = w.broken || err != nil
		return n, err
	}
	return io.Copy(writerOnly{w}, r)
}

// A writerOnly hides ReadFrom from io.Copy.
type writerOnly struct{ io.Writer }

// Flush implements [http.Flusher].
func (w *response) Flush() {
	w.written = true
	w.expectWrite()
	if http.NewResponseController(w.ResponseWriter).Flush() != nil {
		w.broken = true
	}
}

// Unwrap returns the writer of the server, for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// expectWrite sets the deadline of a write. A connection without deadlines is served
// without.
func (w *response) expectWrite() {
	if w.control != nil {
		w.control.SetWriteDeadline(time.Now().Add(w.limit))
	}
}

// writer returns the response with the abilities of the connection.
func (w *response) writer() http.ResponseWriter {
	if _, ok := w.ResponseWriter.(http.Hijacker); ok {
		return hijackable{w}
	}
	return w
}

// A hijackable is a response whose connection can be taken over.
type hijackable struct{ *response }

// Hijack implements [http.Hijacker]. The deadlines of a connection that is taken over are
// those of its new owner.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.control != nil {
		w.control.SetWriteDeadline(time.Time{})
		w.control.SetReadDeadline(time.Time{})
		w.control = nil
	}
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

// A slowBody is the body of a request, with a bound on how long a read may take.
type slowBody struct {
	io.ReadCloser
	response *response
}

// Read implements [io.Reader].
func (b *slowBody) Read(p []byte) (int, error) {
	w := b.response
	if w.control != nil {
		w.control.SetReadDeadline(time.Now().Add(w.limit))
	}
	n, err := b.ReadCloser.Read(p)
	if w.control != nil {
		w.control.SetReadDeadline(time.Time{})
	}
	if err != nil && err != io.EOF {
		w.broken = true
	}
	return n, err
}
