package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/rate"
)

// A transport bounds the requests of a client: how many are in flight and how many start
// in a second.
type transport struct {
	next     http.RoundTripper
	inFlight sema.Gate
	rate     *rate.Gate

	mu       sync.Mutex
	pausedTo time.Time // guarded by mu: the latest time that a reply has named

	running  peak.Meter
	attempts atomic.Int64
}

// RoundTrip implements [http.RoundTripper]. The permit is held until the body of the
// response is closed.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	permit, err := t.acquire(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	t.attempts.Add(1)
	t.running.Add(1)
	release := sync.OnceFunc(func() { t.running.Add(-1); permit.Release() })
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	if wait, ok := retryAfter(resp); ok {
		t.pause(time.Now().Add(wait))
	}
	resp.Body = &body{ReadCloser: resp.Body, release: release}
	return resp, nil
}

// acquire acquires a permit of each gate. The rate comes last: its permit is then spent
// at once, and is not spent by a caller that still waits for the other gate.
func (t *transport) acquire(ctx context.Context) (sema.Permit, error) {
	permit, err := t.inFlight.Acquire(ctx, 1)
	if err != nil {
		return permit, err
	}
	if _, err := t.rate.Acquire(ctx, 1); err != nil {
		permit.Release()
		return sema.Permit{}, err
	}
	return permit, nil
}

// pause sends nothing until a time. An earlier time does not shorten a pause.
func (t *transport) pause(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.pausedTo) {
		t.pausedTo = until
		t.rate.PauseUntil(until)
	}
}

type body struct {
	io.ReadCloser
	release func()
}

// Close closes the body and returns the permit.
func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// retryAfter returns how long to wait, if the service is overloaded and has stated it.
func retryAfter(resp *http.Response) (wait time.Duration, ok bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	header := resp.Header.Get("Retry-After")
	if at, err := http.ParseTime(header); err == nil {
		return time.Until(at), true
	}
	seconds, err := strconv.Atoi(header)
	return time.Duration(seconds) * time.Second, err == nil
}
