package admit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// slowClient is the bound of these tests, and pause is longer. A client on the same machine
// takes far less.
const (
	slowClient = 600 * time.Millisecond
	pause      = 3 * slowClient / 2
)

// TestHandler_SlowClientSparesSlowHandlers pauses in the handler, and between two requests on
// one connection. The bound is that of a read or a write, so neither may end anything.
func TestHandler_SlowClientSparesSlowHandlers(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for name, handler := range map[string]http.HandlerFunc{
			"after a write": func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "a")
				time.Sleep(pause)
				io.WriteString(w, "b")
			},
			"after a flush": func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "a")
				w.(http.Flusher).Flush()
				time.Sleep(pause)
				io.WriteString(w, "b")
			},
			"at the end": func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "ab")
				time.Sleep(pause)
			},
			"after a read": func(w http.ResponseWriter, r *http.Request) {
				r.Body.Read(make([]byte, 1))
				time.Sleep(pause)
				if r.Context().Err() != nil {
					t.Error("the context ended")
				}
				rest, err := io.ReadAll(r.Body)
				io.WriteString(w, "a")
				if err == nil && string(rest) == "o" {
					io.WriteString(w, "b")
				}
			},
			"between requests": func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				io.WriteString(w, "ab")
			},
		} {
			protocol := map[bool]string{false: "HTTP/1", true: "HTTP/2"}[http2]
			t.Run(protocol+" "+name, func(t *testing.T) {
				t.Parallel()
				h := admit.HTTP{Controller: admit.New(admit.Config{Logger: quiet}), SlowClient: slowClient}
				s := httptest.NewUnstartedServer(h.Handler(handler))
				s.EnableHTTP2 = http2
				s.StartTLS()
				defer s.Close()
				for i := range 2 {
					if name == "between requests" && i > 0 {
						time.Sleep(pause)
					} else if i > 0 {
						break
					}
					resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("yo"))
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || string(body) != "ab" || resp.ProtoMajor != int(protocol[5]-'0') {
						t.Fatalf("HTTP/%d: %q, %v", resp.ProtoMajor, body, err)
					}
				}
			})
		}
	}
}

// TestHandler_SlowClientKeepsOtherDeadlines checks that the deadlines of the server and of the
// handler still hold.
func TestHandler_SlowClientKeepsOtherDeadlines(t *testing.T) {
	t.Parallel()
	// stream writes until that fails, and fails the test after ten seconds.
	stream := func(t *testing.T, w http.ResponseWriter) {
		for range 1000 {
			io.WriteString(w, "part")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("the deadline was lost")
	}
	for name, test := range map[string]struct {
		handler func(*testing.T, http.ResponseWriter)
		timeout time.Duration
	}{
		"of the server": {stream, 200 * time.Millisecond},
		"of the handler": {func(t *testing.T, w http.ResponseWriter) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			stream(t, w)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := admit.HTTP{Controller: admit.New(admit.Config{Logger: quiet}), SlowClient: time.Hour}
			s := httptest.NewUnstartedServer(h.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { test.handler(t, w) })))
			s.Config.WriteTimeout = test.timeout
			s.Start()
			defer s.Close()
			if resp, err := s.Client().Get(s.URL); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}

// TestHandler_BodyIsReadByAnotherGoroutine reads the body while the handler writes, as a
// reverse proxy does, and goes on after the handler has returned.
func TestHandler_BodyIsReadByAnotherGoroutine(t *testing.T) {
	t.Parallel()
	h := admit.HTTP{Controller: admit.New(admit.Config{Queue: wfq.New(1), Logger: quiet}), SlowClient: time.Minute}
	read := make(chan error, 20)
	s := serve(t, h, func(w http.ResponseWriter, r *http.Request) {
		go func() {
			var err error
			for p := make([]byte, 1); err == nil; {
				_, err = r.Body.Read(p)
			}
			read <- err
		}()
		io.WriteString(w, "hello")
	})
	for range cap(read) {
		resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader(strings.Repeat("x", 1000)))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		<-read
	}
}

// probe sends a request through a handler behind a half-open breaker, and returns its last
// change of state, which shows the result: OK closes it, Failed opens it, and Ignored leaves
// it half-open.
func probe(t *testing.T, handler http.HandlerFunc, send func(*httptest.Server)) admit.State {
	t.Helper()
	var state atomic.Uint32
	b := admit.NewBreaker(admit.BreakerConfig{OpenFor: 1, Probes: 1, OnChange: func(_, to admit.State) { state.Store(uint32(to)) }})
	b.Trip()
	for b.State() == admit.Open {
		time.Sleep(time.Millisecond)
	}
	q := wfq.New(1)
	s := serve(t, admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Breaker: b, Logger: quiet})}, func(w http.ResponseWriter, r *http.Request) {
		handler(w, r)
	})
	send(s)
	for q.Stats().Acquired == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := q.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return admit.State(state.Load())
}

func TestHandler_ResultOfResponsesWithoutABody(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"204": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		},
		"longer than its Content-Length": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1")
			if _, err := io.WriteString(w, "xy"); !errors.Is(err, http.ErrContentLength) {
				t.Error(err)
			}
		},
	} {
		if got := probe(t, handler, func(s *httptest.Server) {
			if resp, err := s.Client().Get(s.URL); err == nil {
				resp.Body.Close()
			}
		}); got != admit.Closed {
			t.Errorf("%s: the breaker is %v, want closed", name, got)
		}
	}
	c := admit.New(admit.Config{Logger: quiet, Breaker: admit.NewBreaker(admit.BreakerConfig{MinCalls: 1})})
	admit.HTTP{Controller: c}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.(http.Flusher).Flush() // of a writer that cannot
	})).ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
	if c.Stats().Breaker != admit.Open {
		t.Error("a flush that is not supported hides a failure")
	}
}

func TestHandler_PanicAfterTheClientLeftIsIgnored(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		got := probe(t, func(w http.ResponseWriter, r *http.Request) {
			if leaves {
				cancel()
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler) // as a reverse proxy does
		}, func(s *httptest.Server) {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			if resp, err := s.Client().Do(r); err == nil {
				resp.Body.Close()
				t.Error("a response")
			}
		})
		cancel()
		if ignored := got == admit.HalfOpen; ignored != leaves {
			t.Errorf("client leaves: %v; breaker %v", leaves, got)
		}
	}
}

func TestReject_DeadlineOfTheServerIsNoMissingClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for want, ctx := range map[int]context.Context{503: ctx, 499: cancelled(t)} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "3") // of another handler
		admit.Reject(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil), context.Cause(ctx))
		if w.Code != want || w.Header().Get("Content-Length") != "" || (w.Header().Get("Retry-After") != "") != (want == 503) {
			t.Errorf("%d with %v, want %d", w.Code, w.Header(), want)
		}
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
