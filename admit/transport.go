package admit

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Retry configures the retries of a transport. A request is retried only if it is
// idempotent, its body can be sent again, and the response was 429 or 503 or there was none.
type Retry struct {
	// Most is how often one request is retried. Default 0: never.
	Most int
	// Budget is how many retries there may be per request, on average: 0.1 adds at most a
	// tenth to the load of a dependency that fails. Default 0.1.
	Budget float64
	// Base is the longest first delay; it doubles with each retry, and the actual delay is
	// random below it. Default 100ms. A Retry-After of the response is waited for in
	// addition.
	Base time.Duration
	// MaxDelay bounds a delay. A request whose Retry-After is longer is not retried.
	// Default 10s.
	MaxDelay time.Duration
}

// Transport returns a transport whose requests are admitted first, for clients of a
// dependency that must not be overrun. A permit is held until the body of the response is
// closed or read to its end. Responses of 429 and 503 are dropped requests: they count for
// breaker and limit, and their Retry-After pauses the rate if it has a method PauseUntil.
func (h HTTP) Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	orDefault(&h.Retry.Budget, 0.1)
	orDefault(&h.Retry.Base, 100*time.Millisecond)
	orDefault(&h.Retry.MaxDelay, 10*time.Second)
	return &transport{HTTP: h, next: next, budget: retryBudget{ratio: h.Retry.Budget, left: retryReserve}}
}

type transport struct {
	HTTP
	next   http.RoundTripper
	budget retryBudget
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.budget.requested()
	for try := 0; ; try++ {
		resp, err := t.once(r)
		delay, again := t.retries(r, resp, err, try)
		if !again {
			return resp, err
		}
		if resp != nil {
			io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // or else the connection is not reused
			resp.Body.Close()
		}
		if err := sleep(r.Context(), delay); err != nil {
			return nil, err
		}
		if r, err = rewound(r); err != nil {
			return nil, err
		}
	}
}

// once sends the request if it is admitted.
func (t *transport) once(r *http.Request) (*http.Response, error) {
	a, err := t.Controller.Admit(r.Context(), t.request(r))
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if a.Degraded() { // a client has no cheap response, and the request holds no permit
		a.Done(Ignored)
		closeBody(r)
		return nil, &Rejection{Controller: t.Controller.Name(), Reason: ReasonFull, Err: facts[ReasonFull]}
	}
	defer func() {
		if p := recover(); p != nil {
			a.Done(Failed)
			panic(p)
		}
	}()
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		a.Done(ResultOf(err))
		return resp, err
	}
	o := resultOfStatus(resp.StatusCode)
	if o == Dropped {
		t.pause(resp)
	}
	resp.Body = &heldBody{ReadCloser: resp.Body, admission: a, result: o}
	return resp, nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// pause passes the Retry-After of a response on to the rate.
func (t *transport) pause(resp *http.Response) {
	p, ok := t.Controller.rate.Limiter.(interface{ PauseUntil(time.Time) })
	if wait := retryAfterOf(resp); ok && wait > 0 {
		p.PauseUntil(time.Now().Add(wait))
	}
}

// retryAfterOf returns the Retry-After of a response, in seconds or as a date; 0: none.
func retryAfterOf(resp *http.Response) time.Duration {
	header := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// retries reports whether a request is to be sent again, and after how long.
func (t *transport) retries(r *http.Request, resp *http.Response, err error, try int) (time.Duration, bool) {
	if try >= t.Retry.Most || !repeatable(r) || r.Context().Err() != nil || RejectionOf(err) != nil {
		return 0, false
	}
	delay := min(t.Retry.Base<<min(try, 20), t.Retry.MaxDelay)
	delay = rand.N(delay) + 1
	if err == nil {
		if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
			return 0, false
		}
		asked := retryAfterOf(resp)
		if asked > t.Retry.MaxDelay {
			return 0, false
		}
		delay += asked
	}
	if deadline, ok := r.Context().Deadline(); ok && time.Until(deadline) < delay {
		return 0, false
	}
	return delay, t.budget.take()
}

// repeatable reports whether a request can be sent twice without harm.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
	default:
		if r.Header.Get("Idempotency-Key") == "" {
			return false
		}
	}
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// rewound returns the request with its body at the start.
func rewound(r *http.Request) (*http.Request, error) {
	if r.GetBody == nil {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = body
	return r, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A retryBudget bounds retries to a ratio of the requests: each request adds the ratio, each
// retry takes one. It starts with a few, so that a client that sends little can retry.
type retryBudget struct {
	ratio float64

	mu   sync.Mutex
	left float64 // retries that may follow, at most retryReserve
}

const retryReserve = 10

// requested adds what one request allows.
func (b *retryBudget) requested() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(retryReserve, b.left+b.ratio)
}

// take reports whether there may be one more retry.
func (b *retryBudget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// A heldBody is the body of a response whose request is in flight until the body is closed
// or read to its end.
type heldBody struct {
	io.ReadCloser
	admission Admission
	result    Result
}

// Read implements [io.Reader].
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.admission.Done(b.result)
	case err != nil:
		b.admission.Done(ResultOf(err))
	}
	return n, err
}

// Close implements [io.Closer].
func (b *heldBody) Close() error {
	defer b.admission.Done(b.result)
	return b.ReadCloser.Close()
}

// Write implements [io.Writer] for connections that were upgraded (101), whose body is the
// connection.
func (b *heldBody) Write(p []byte) (int, error) {
	if w, ok := b.ReadCloser.(io.Writer); ok {
		return w.Write(p)
	}
	return 0, http.ErrNotSupported
}
