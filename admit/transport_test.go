package admit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

// A roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A closed body notes whether it was closed.
type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

// TestTransport_ReturnsThePermitOfResponsesWithoutABody covers what other RoundTrippers
// return, also against the contract.
func TestTransport_ReturnsThePermitOfResponsesWithoutABody(t *testing.T) {
	t.Parallel()
	for name, resp := range map[string]*http.Response{
		"nil response": nil, "nil body": {StatusCode: 200}, "no body": {StatusCode: 204, Body: http.NoBody},
	} {
		q := wfq.New(1)
		tr := admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Logger: quiet})}.Transport(
			roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }))
		got, err := tr.RoundTrip(httptest.NewRequest("GET", "/", nil))
		if got != resp || err != nil || resp != nil && got.Body != resp.Body {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if n := q.Stats().InUse; n != 0 {
			t.Errorf("%s: %d permits in use", name, n)
		}
	}
}

func TestTransport_PanicReturnsThePermit(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	tr := admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Logger: quiet})}.Transport(
		roundTripper(func(*http.Request) (*http.Response, error) { panic("broken") }))
	if !panics(func() { tr.RoundTrip(httptest.NewRequest("GET", "/", nil)) }) || q.Stats().InUse != 0 {
		t.Errorf("no panic, or %d permits in use", q.Stats().InUse)
	}
}

// TestTransport_UpgradedConnectionHoldsThePermit switches protocols. The server closes its
// side; the client may still write, so the request is in flight until the client closes.
func TestTransport_UpgradedConnectionHoldsThePermit(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n")
		conn.(*net.TCPConn).CloseWrite()
		line, _ := bufio.NewReader(buffered).ReadString('\n')
		received <- line
	}))
	defer s.Close()
	q := wfq.New(1)
	client := &http.Client{Transport: admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Logger: quiet})}.Transport(nil)}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatal("the body of an upgraded connection is no io.ReadWriteCloser")
	}
	if all, err := io.ReadAll(conn); string(all) != "hello\n" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
	if q.Stats().InUse != 1 {
		t.Error("the permit was returned while the connection is open")
	}
	if _, err := io.WriteString(conn, "back\n"); err != nil || <-received != "back\n" {
		t.Error("the connection cannot be written")
	}
	conn.Close()
	if q.Stats().InUse != 0 {
		t.Error("the permit is held after the connection was closed")
	}
}

func TestTransport_BodyOfAResponseCannotBeWritten(t *testing.T) {
	t.Parallel()
	tr := admit.HTTP{Controller: admit.New(admit.Config{Logger: quiet})}.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x"))}, nil
	}))
	resp, err := tr.RoundTrip(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, ok := resp.Body.(io.Writer); ok {
		t.Error("the body is an io.Writer")
	}
}

// TestTransport_ClosesTheBodyOfARequest covers the ways in which a request is not sent.
func TestTransport_ClosesTheBodyOfARequest(t *testing.T) {
	t.Parallel()
	shedding := admit.New(admit.Config{Logger: quiet})
	shedding.Shed(true)
	degrading := admit.New(admit.Config{Queue: wfq.New(0), Degrade: func(admit.Load) bool { return true }, Logger: quiet})
	for name, h := range map[string]admit.HTTP{
		"rejected": {Controller: shedding}, "degraded": {Controller: degrading},
		"panic of Class": {Controller: shedding, Class: func(*http.Request) string { panic("broken") }},
	} {
		body := &closed{Reader: strings.NewReader("x")}
		r := httptest.NewRequest("PUT", "/", body)
		panicked := panics(func() {
			if _, err := h.Transport(nil).RoundTrip(r); admit.RejectionOf(err) == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if panicked != (h.Class != nil) || !body.closed {
			t.Errorf("%s: panicked %v, closed %v", name, panicked, body.closed)
		}
	}
}

// TestTransport_RetriesLeaveTheRequestAlone retries after the body was read in part.
func TestTransport_RetriesLeaveTheRequestAlone(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, test := range []struct {
		name    string
		getBody func() (io.ReadCloser, error)
		sent    string
		err     error
	}{
		{"with a body", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }, "he hello", nil},
		{"with a body that cannot be read again", nil, "he", io.ErrUnexpectedEOF},
		{"with a body that fails", func() (io.ReadCloser, error) { return nil, broken }, "he", broken},
	} {
		q := wfq.New(1)
		var sent []string
		tr := admit.HTTP{Controller: admit.New(admit.Config{Queue: q, Logger: quiet}), Retry: admit.Retry{Most: 1, Base: 1}}.Transport(
			roundTripper(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				if len(sent) == 0 {
					part := make([]byte, 2)
					io.ReadFull(r.Body, part)
					sent = append(sent, string(part))
					return nil, io.ErrUnexpectedEOF
				}
				all, _ := io.ReadAll(r.Body)
				sent = append(sent, string(all))
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}))
		body := &closed{Reader: strings.NewReader("hello")}
		r := httptest.NewRequest("PUT", "/", body)
		r.GetBody = test.getBody
		_, err := tr.RoundTrip(r)
		if !errors.Is(err, test.err) || strings.Join(sent, " ") != test.sent || r.Body != io.ReadCloser(body) || !body.closed || q.Stats().InUse != 0 {
			t.Errorf("%s: sent %q, %v; the body is that of the caller: %v, closed: %v; %d in use", test.name, sent, err, r.Body == io.ReadCloser(body), body.closed, q.Stats().InUse)
		}
	}
}

func TestTransport_LongestDelaysOfRetries(t *testing.T) {
	t.Parallel()
	tries := 0
	tr := admit.HTTP{Controller: admit.New(admit.Config{Logger: quiet}), Retry: admit.Retry{Most: 5, Base: math.MaxInt64, MaxDelay: 1}}.Transport(
		roundTripper(func(*http.Request) (*http.Response, error) {
			tries++
			return nil, fmt.Errorf("try %d", tries)
		}))
	if _, err := tr.RoundTrip(httptest.NewRequest("GET", "/", nil)); err == nil || tries != 6 {
		t.Errorf("%d tries, %v", tries, err)
	}
	if !panics(func() { admit.HTTP{Retry: admit.Retry{Most: 1, Base: -1}}.Transport(nil) }) {
		t.Error("a negative delay is accepted")
	}
}

// TestListener_PassesAbilitiesOn needs ReadFrom for sendfile, and CloseWrite so that a server
// can end a connection without losing its response.
func TestListener_PassesAbilitiesOn(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := sema.New(1)
	l := admit.Listener(inner, gate)
	defer l.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.(io.ReaderFrom).ReadFrom(strings.NewReader("hello")); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if all, err := io.ReadAll(client); string(all) != "hello" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}

// A failing listener accepts nothing.
type failing struct{ net.Listener }

func (failing) Accept() (net.Conn, error) { return nil, errors.New("too many open files") }
func (failing) Close() error              { return nil }

func TestListener_ErrorsOfAcceptReturnThePermit(t *testing.T) {
	t.Parallel()
	gate := sema.New(1)
	l := admit.Listener(failing{}, gate)
	for range 3 {
		if _, err := l.Accept(); err == nil || err.Error() != "too many open files" {
			t.Errorf("%v", err)
		}
	}
	l.Close()
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || gate.Stats().InUse != 0 {
		t.Errorf("%v, %d in use", err, gate.Stats().InUse)
	}
	full := sema.New(0, sema.MaxWait(time.Nanosecond))
	_, err := admit.Listener(failing{}, full).Accept()
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
		t.Errorf("%v is not temporary", err)
	}
}
