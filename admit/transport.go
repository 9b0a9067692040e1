package admit

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
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
// closed or read to its end; that of an upgraded connection (101) until it is closed.
// Responses of 429, 503 and 504 are dropped requests: they count for breaker and limit. Their
// Retry-After pauses the rate, and so does what any response states about the limits of the
// upstream, see [Controller.Obey]. [SettleResponse] corrects the cost of a request.
func (h HTTP) Transport(next http.RoundTripper) http.RoundTripper {
	h.check("Transport")
	if next == nil {
		next = http.DefaultTransport
	}
	orDefault(&h.Retry.Budget, 0.1)
	orDefault(&h.Retry.Base, 100*time.Millisecond)
	orDefault(&h.Retry.MaxDelay, 10*time.Second)
	if !(h.Retry.Budget >= 0) || h.Retry.Base < 0 || h.Retry.MaxDelay < 0 {
		panic("admit: HTTP.Transport: want a budget and delays of retries from 0")
	}
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
	a, err := t.admit(r)
	if err != nil {
		return nil, err
	}
	result, held := Failed, false // if next panics
	defer func() {
		if !held {
			a.Done(result)
		}
	}()
	r = withCost(r, a)
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		result = ResultOf(err)
		return resp, err
	}
	if resp == nil { // against the contract; http.Client returns an error
		return nil, nil
	}
	if resp.Request == nil {
		resp.Request = r
	}
	result = resultOfStatus(resp.StatusCode)
	t.Controller.Obey(resp)
	if resp.Body != nil && resp.Body != http.NoBody {
		resp.Body, held = hold(resp, a, result), true
	}
	return resp, nil
}

// admit admits the request, or closes its body.
func (t *transport) admit(r *http.Request) (Admission, error) {
	admitted := false
	defer func() {
		if !admitted && r.Body != nil {
			r.Body.Close()
		}
	}()
	a, err := t.Controller.Admit(r.Context(), t.request(r))
	if err != nil {
		return a, err
	}
	if a.Degraded() { // a client has no cheap response, and the request holds no permit
		a.Done(Ignored)
		return a, &Rejection{Controller: t.Controller.Name(), Reason: ReasonFull, Err: facts[ReasonFull]}
	}
	admitted = true
	return a, nil
}

// retries reports whether a request is to be sent again, and after how long.
func (t *transport) retries(r *http.Request, resp *http.Response, err error, try int) (time.Duration, bool) {
	if try >= t.Retry.Most || !repeatable(r) || r.Context().Err() != nil || RejectionOf(err) != nil {
		return 0, false
	}
	delay := min(times(1<<min(try, 20), t.Retry.Base), t.Retry.MaxDelay)
	delay = rand.N(delay) + 1
	if err == nil {
		if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
			return 0, false
		}
		asked := retryAfterOf(resp.Header, time.Now())
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

// hold returns the body of a response, with its permit.
func hold(resp *http.Response, a Admission, o Result) io.ReadCloser {
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return &upgraded{conn, a, o}
	}
	return &heldBody{resp.Body, a, o}
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

// An upgraded connection (101) is in flight until it is closed: one that was read to its end
// may still be written.
type upgraded struct {
	io.ReadWriteCloser
	admission Admission
	result    Result
}

// Close implements [io.Closer].
func (c *upgraded) Close() error {
	defer c.admission.Done(c.result)
	return c.ReadWriteCloser.Close()
}
