package admit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// serve starts a server on loopback whose handler stands behind a controller.
func serve(t *testing.T, h admit.HTTP, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h.Handler(handler))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestHandler_RejectsWithAProblem(t *testing.T) {
	t.Parallel()
	q := wfq.New(0)
	for _, test := range []struct {
		name   string
		config admit.Config
		status int
		reason string
	}{
		{"saturation", admit.Config{Queue: q, MaxWait: time.Nanosecond}, 503, "deadline"},
		{"rate", admit.Config{Rate: spent(t), MaxWait: time.Second}, 429, "rate"},
		{"class rate", admit.Config{RateOf: func(string) rate.Limiter { return spent(t) }, MaxWait: time.Second}, 429, "class-rate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Name, test.config.Logger = "secret-name", quiet
			s := serve(t, admit.HTTP{Controller: admit.New(test.config)}, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
			resp, body := get(t, s.Client(), s.URL)
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.StatusCode != test.status || resp.Header.Get("X-Shed-Reason") != test.reason || err != nil || after < 1 {
				t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
			}
			var problem struct {
				Status     int
				Title      string
				Reason     string
				RetryAfter int `json:"retry_after"`
			}
			if err := json.Unmarshal([]byte(body), &problem); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%v: %s", err, body)
			}
			if problem.Status != test.status || problem.Reason != test.reason || problem.RetryAfter != after || problem.Title == "" || strings.Contains(body, "secret-name") {
				t.Errorf("%s", body)
			}
		})
	}
}

// spent returns a rate that is used up for an hour.
func spent(t *testing.T) *rate.Gate {
	g := rate.New(1, time.Hour)
	if _, err := g.TryAcquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestReject_ErrorsOfGates checks the headers for errors that are no rejections of a
// controller: they follow what the gate knows.
func TestReject_ErrorsOfGates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		reason string
		least  int
	}{
		{&sema.Error{Op: "try", Name: "secret-name", Err: sema.ErrFull, After: 6500 * time.Millisecond}, "full", 7},
		{fmt.Errorf("charge: %w", &sema.Error{Err: sema.ErrDraining}), "draining", 1},
		{&admit.Rejection{Reason: admit.ReasonBreaker, RetryAfter: 3 * time.Second, Err: sema.ErrUnavailable}, "breaker", 3},
		{errors.New("secret-name"), "", 1},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("X-Shed-Reason", "stale")
		admit.Reject(w, httptest.NewRequest("GET", "/", nil), test.err)
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != http.StatusServiceUnavailable || err != nil || after < test.least || after > test.least+test.least/4+1 {
			t.Errorf("%v: %d, Retry-After %q", test.err, w.Code, w.Header().Get("Retry-After"))
		}
		if got := w.Header().Get("X-Shed-Reason"); got != test.reason || strings.Contains(w.Body.String(), "secret-name") {
			t.Errorf("%v: X-Shed-Reason %q, want %q; %s", test.err, got, test.reason, w.Body)
		}
	}
}

func TestRetryAfter_IsJitteredAndAtLeastASecond(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 1000 {
		if got := admit.RetryAfter(0); got < 1 || got > 2 {
			t.Fatalf("RetryAfter(0) = %d", got)
		}
		got := admit.RetryAfter(19500 * time.Millisecond)
		if got < 20 || got > 26 {
			t.Fatalf("RetryAfter(19.5s) = %d", got)
		}
		seen[got] = true
	}
	if len(seen) < 4 {
		t.Errorf("only the values %v", seen)
	}
	if got := admit.RetryAfter(1<<63 - 1); got < 1 {
		t.Errorf("RetryAfter of the longest duration = %d", got)
	}
}

func TestHandler_ReleasesOnce(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 1000})
	c := admit.New(admit.Config{Queue: q, Breaker: b, MaxWait: time.Minute, Logger: quiet})
	s := httptest.NewUnstartedServer(admit.HTTP{Controller: c}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q.Stats().InUse != 1 {
			t.Errorf("%d in use while the handler runs", q.Stats().InUse)
		}
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/stream":
			for range 3 {
				io.WriteString(w, "part ")
				w.(http.Flusher).Flush()
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
		case "/hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
			conn.Close()
		}
	})))
	s.Start()
	defer s.Close()
	for range 3 {
		if _, body := get(t, s.Client(), s.URL+"/stream"); body != "part part part " {
			t.Errorf("%q", body)
		}
		if _, body := get(t, s.Client(), s.URL+"/hijack"); body != "hi" {
			t.Errorf("%q", body)
		}
		if resp, err := s.Client().Get(s.URL + "/panic"); err == nil {
			resp.Body.Close()
			t.Error("a panic got a response")
		}
	}
	if err := c.Shutdown(t.Context()); err != nil || q.Stats().InUse != 0 {
		t.Errorf("%v, %d in use", err, q.Stats().InUse)
	}
}

func TestHandler_HTTP2(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Queue: wfq.New(2), MaxWait: time.Minute, Logger: quiet})
	s := httptest.NewUnstartedServer(admit.HTTP{Controller: c, SlowClient: time.Minute}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if _, ok := w.(http.Hijacker); ok || err != nil || r.ProtoMajor != 2 {
			t.Errorf("hijacker %v, %v, HTTP/%d", ok, err, r.ProtoMajor)
		}
		w.Write(body)
		w.(http.Flusher).Flush()
	})))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for range 20 {
		resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "hello" {
			t.Fatalf("%q, %v", body, err)
		}
	}
}

// TestHandler_SlowClientReturnsItsPermit connects clients that send or read nothing.
func TestHandler_SlowClientReturnsItsPermit(t *testing.T) {
	t.Parallel()
	q := wfq.New(2)
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 1})
	c := admit.New(admit.Config{Queue: q, Breaker: b, Logger: quiet})
	s := serve(t, admit.HTTP{Controller: c, SlowClient: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		chunk := make([]byte, 1<<20)
		for range 200 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		t.Error("200 MB fit into buffers")
	})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\npart"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, request)
	}
	for q.Stats().Acquired < 2 { // until both are served
		time.Sleep(time.Millisecond)
	}
	if err := q.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.State() != admit.Closed {
		t.Error("slow clients count as failures of the service")
	}
}

func TestHandler_ResultsOfResponses(t *testing.T) {
	t.Parallel()
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 3, FailureRatio: 1})
	s := serve(t, admit.HTTP{Controller: admit.New(admit.Config{Breaker: b, Logger: quiet})}, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(status)
	})
	for _, status := range []string{"500", "503", "504"} {
		if b.State() != admit.Closed {
			t.Error("opened early")
		}
		get(t, s.Client(), s.URL+"/"+status)
	}
	if b.State() != admit.Open {
		t.Error("three failed responses did not open the breaker")
	}
}

func TestHandler_Degrades(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Degrade: func(admit.Load) bool { return true }, Logger: quiet})
	c.Shed(true)
	cheap := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "cheap") })
	s := serve(t, admit.HTTP{Controller: c, Degraded: cheap}, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	if _, body := get(t, s.Client(), s.URL); body != "cheap" {
		t.Errorf("%q", body)
	}
	s = serve(t, admit.HTTP{Controller: c}, func(w http.ResponseWriter, r *http.Request) {
		if !admit.FromContext(r.Context()).Degraded() {
			t.Error("the handler cannot see that it should be cheap")
		}
	})
	get(t, s.Client(), s.URL)
}

func TestTransport_HoldsThePermitUntilTheBodyIsClosed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer s.Close()
	q := wfq.New(1)
	client := &http.Client{Transport: admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Logger: quiet})}.Transport(nil)}
	resp, err := client.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if q.Stats().InUse != 1 {
		t.Error("the permit was released before the body was read")
	}
	resp.Body.Close()
	if q.Stats().InUse != 0 {
		t.Error("the permit is held after the body was closed")
	}
	get(t, client, s.URL) // reads to the end
	if _, err := client.Get("http://127.0.0.1:1/"); err == nil || q.Stats().InUse != 0 {
		t.Errorf("%v, %d in use", err, q.Stats().InUse)
	}
}

func TestTransport_RetriesWithinItsBudget(t *testing.T) {
	t.Parallel()
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if requests++; string(body) != "x" && r.Method == http.MethodPut {
			t.Errorf("the body of a retry is %q", body)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	client := &http.Client{Transport: admit.HTTP{
		Controller: admit.New(admit.Config{Logger: quiet}), Retry: admit.Retry{Most: 3, Base: time.Microsecond},
	}.Transport(nil)}
	const calls = 100
	for range calls {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, strings.NewReader("x"))
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if retries := requests - calls; retries < 10 || retries > 10+calls/10 {
		t.Errorf("%d retries of %d requests, want a tenth and the reserve of 10", retries, calls)
	}
	requests = 0
	resp, err := client.Post(s.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if requests != 1 {
		t.Error("a POST was retried")
	}
}

func TestTransport_FeedsBreakerAndRate(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	paused := rate.New(100, time.Second)
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 1})
	client := &http.Client{Transport: admit.HTTP{Controller: admit.New(admit.Config{Rate: paused, Breaker: b, MaxWait: time.Second, Logger: quiet})}.Transport(nil)}
	resp, _ := get(t, client, s.URL)
	if resp.StatusCode != http.StatusTooManyRequests || b.State() != admit.Open {
		t.Errorf("status %d, breaker %v", resp.StatusCode, b.State())
	}
	b.Reset()
	_, err := client.Get(s.URL)
	if r := admit.RejectionOf(err); r == nil || r.Reason != admit.ReasonRate || r.RetryAfter != time.Hour {
		t.Errorf("after a Retry-After of an hour: %v", err)
	}
}

func TestListener_BoundsConnections(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := wfq.New(1)
	l := admit.Listener(inner, gate)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	var clients [2]net.Conn
	for i := range clients {
		if clients[i], err = net.Dial("tcp", inner.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
	}
	first := <-accepted
	if gate.Stats().InUse != 1 {
		t.Errorf("%d permits for one connection", gate.Stats().InUse)
	}
	first.Close()
	first.Close() // returns one permit
	second := <-accepted
	if st := gate.Stats(); st.InUse != 1 {
		t.Errorf("%d in use", st.InUse)
	}
	l.Close() // ends the wait for a permit
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	second.Close()
	if gate.Stats().InUse != 0 {
		t.Error("a permit leaked")
	}
}

func TestDescriptors_LeavesHeadroom(t *testing.T) {
	t.Parallel()
	s, err := admit.Descriptors(10)
	if errors.Is(err, admit.ErrNoLimit) {
		t.Skip("this system has no limit of descriptors")
	}
	if err != nil {
		t.Fatal(err)
	}
	less, err := admit.Descriptors(20)
	if err != nil || s.Stats().Capacity-less.Stats().Capacity < 5 { // other tests open and close files
		t.Errorf("%v, %v, %v", s, less, err)
	}
	if _, err := admit.Descriptors(1 << 40); err == nil {
		t.Error("more headroom than descriptors is accepted")
	}
}
