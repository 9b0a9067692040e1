// Package upstreamtest is a server that has the limits of an LLM provider: requests and tokens
// per window of time, in sliding windows, and requests at once. It counts how often they are
// exceeded, and how much of them is used. Tests and examples use it in place of a provider.
package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits are the limits of an [Upstream].
type Limits struct {
	Window           time.Duration
	Requests, Tokens int64 // in each window
	AtOnce           int
	Least, Most      time.Duration // how long a request takes
}

// An Upstream is an [http.Handler]. A request is a JSON document with max_tokens, the most it
// may cost. It costs between a quarter of that and all of it: the response states how much, as
// usage.total_tokens. A request beyond a limit is a violation, and gets 429 with Retry-After.
// A request counts from its arrival; while it runs, it counts as max_tokens.
type Upstream struct {
	limits Limits

	mu         sync.Mutex // guards what follows
	used       []*use     // of the last window, by time
	running    int
	violations []string
	requests   int64
	tokens     int64
}

// A use is a request that was served or is running.
type use struct {
	at     time.Time
	tokens int64
}

// New returns an upstream with limits.
func New(l Limits) *Upstream { return &Upstream{limits: l} }

// A Prompt is the body of a request.
type Prompt struct {
	MaxTokens int64 `json:"max_tokens"`
}

// A Completion is the body of a response.
type Completion struct {
	Usage struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// ServeHTTP implements [http.Handler].
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var prompt Prompt
	if err := json.NewDecoder(r.Body).Decode(&prompt); err != nil || prompt.MaxTokens < 1 {
		http.Error(w, "want a JSON document with max_tokens", http.StatusBadRequest)
		return
	}
	one, wait := u.begin(time.Now(), prompt.MaxTokens)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		w.Header().Set("Retry-After-Ms", strconv.Itoa(int((wait+time.Millisecond-1)/time.Millisecond)))
		http.Error(w, "over the limit", http.StatusTooManyRequests)
		return
	}
	time.Sleep(u.limits.Least + rand.N(u.limits.Most-u.limits.Least+1))
	var done Completion
	done.Usage.TotalTokens = prompt.MaxTokens/4 + rand.Int64N(prompt.MaxTokens-prompt.MaxTokens/4) + 1
	u.end(w.Header(), one, done.Usage.TotalTokens)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(done)
}

// begin counts a request, or returns after what time to send it again.
func (u *Upstream) begin(now time.Time, most int64) (*use, time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	requests, tokens := u.usedLocked(now)
	over := ""
	switch {
	case requests+1 > u.limits.Requests:
		over = fmt.Sprintf("%d requests in a window, the limit is %d", requests+1, u.limits.Requests)
	case tokens+most > u.limits.Tokens:
		over = fmt.Sprintf("%d tokens in a window, the limit is %d", tokens+most, u.limits.Tokens)
	case u.running+1 > u.limits.AtOnce:
		over = fmt.Sprintf("%d requests at once, the limit is %d", u.running+1, u.limits.AtOnce)
	}
	if over != "" {
		u.violations = append(u.violations, over)
		wait := 100 * time.Millisecond
		if len(u.used) > 0 && u.running < u.limits.AtOnce {
			wait = max(time.Millisecond, u.used[0].at.Add(u.limits.Window).Sub(now))
		}
		return nil, wait
	}
	one := &use{now, most}
	u.used = append(u.used, one)
	u.running++
	u.requests++
	return one, 0
}

// usedLocked returns what was used in the window that ends now.
func (u *Upstream) usedLocked(now time.Time) (requests, tokens int64) {
	for len(u.used) > 0 && now.Sub(u.used[0].at) >= u.limits.Window {
		u.used = u.used[1:]
	}
	for _, one := range u.used {
		tokens += one.tokens
	}
	return int64(len(u.used)), tokens
}

// end sets what a request has cost, and the headers that state what is left.
func (u *Upstream) end(h http.Header, one *use, tokens int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one.tokens = tokens
	u.running--
	u.tokens += tokens
	now := time.Now()
	requests, used := u.usedLocked(now)
	reset := time.Duration(0)
	if len(u.used) > 0 {
		reset = u.used[len(u.used)-1].at.Add(u.limits.Window).Sub(now) // until all is free again
	}
	for kind, left := range map[string]int64{"requests": u.limits.Requests - requests, "tokens": u.limits.Tokens - used} {
		h.Set("X-Ratelimit-Remaining-"+kind, strconv.FormatInt(left, 10))
		h.Set("X-Ratelimit-Reset-"+kind, reset.String())
	}
}

// Violations describes the requests that were over a limit.
func (u *Upstream) Violations() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.violations...)
}

// Served returns how many requests were served so far, and what they have cost.
func (u *Upstream) Served() (requests, tokens int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests, u.tokens
}

// Use returns the part of the limits that was used in a time: the larger of those of requests
// and tokens.
func (u *Upstream) Use(in time.Duration) float64 {
	requests, tokens := u.Served()
	windows := float64(in) / float64(u.limits.Window)
	return max(float64(requests)/(windows*float64(u.limits.Requests)), float64(tokens)/(windows*float64(u.limits.Tokens)))
}

// Pipe serves the upstream without a network, so that it works in a testing/synctest bubble,
// and returns a transport that reaches it under any URL. Call stop at the end.
func (u *Upstream) Pipe() (transport *http.Transport, stop func()) {
	l := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: u}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(l)
	}()
	transport = &http.Transport{MaxIdleConnsPerHost: 1000, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	return transport, func() {
		transport.CloseIdleConnections()
		server.Close()
		<-ended
	}
}

// pipes is a listener for the ends of pipes.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

// Accept implements [net.Listener].
func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p pipes) Close() error {
	close(p.ended)
	return nil
}

// Addr implements [net.Listener].
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
