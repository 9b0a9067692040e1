package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// TestServer_RejectsCrossOriginRequests checks that pages of other sites cannot use a server on
// the browser's machine.
func TestServer_RejectsCrossOriginRequests(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	for _, h := range []header{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}} {
		s.want(403, "POST", "/v1/semaphores/db/drain", "", h)
		s.want(403, "POST", "/v1/semaphores/other/leases?capacity=1", "", h)
	}
	if s.want(200, "GET", "/v1/semaphores/db", "").body["draining"] == true {
		t.Error("the semaphore was drained")
	}
	s.want(200, "POST", "/v1/semaphores/db/drain", "", header{"Sec-Fetch-Site", "same-origin"})
}

// TestServer_RejectsOtherHostNames checks DNS rebinding: a page whose name now resolves to this
// machine is same-origin, but still sends its own name.
func TestServer_RejectsOtherHostNames(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	ask := func(host string) int {
		r, _ := http.NewRequest("GET", s.url+"/v1/semaphores", nil)
		r.Host = host
		response, err := s.http.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for host, status := range map[string]int{"evil.example:7362": 403, "evil.example": 403, "localhost:7362": 200, "127.0.0.1": 200, "[::1]:7362": 200, "localhost": 200} {
		if got := ask(host); got != status {
			t.Errorf("%s: status %d, want %d", host, got, status)
		}
	}
}

// TestServer_BodyThatNeverArrives checks that a body that never arrives does not keep a connection
// open.
func TestServer_BodyThatNeverArrives(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{{Name: "a", Hash: server.HashToken("a"), Verbs: server.Verbs()}}})
	var wg sync.WaitGroup
	for _, path := range []string{"/v1/semaphores/db/leases", "/nowhere", "/sema.v1.StoreService/Open", "/sema.v1.SemaService/Acquire", "/livez"} {
		for _, auth := range []string{"", "Authorization: Bearer a\r\n"} {
			wg.Go(func() {
				c, err := net.Dial("tcp", s.http.Listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path, auth)
				c.SetReadDeadline(time.Now().Add(15 * time.Second))
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("POST %s, %q: no response", path, auth)
				}
			})
		}
	}
	wg.Wait()
}

// TestRPC_WaitOutlastsTheBodyDeadline checks that the deadline for the body does not end a wait.
func TestRPC_WaitOutlastsTheBodyDeadline(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=1m", "")
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url) // HTTP/1.1
	_, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db", WaitMs: 11_000})
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded || !strings.Contains(err.Error(), "waited too long") {
		t.Errorf("error %v", err)
	}
}

// TestTokens_CertificateIsNotAToken checks that a certificate does not replace a token if tokens
// are required.
func TestTokens_CertificateIsNotAToken(t *testing.T) {
	t.Parallel()
	s, err := server.New(memstore.New(), server.Options{Tokens: []server.Token{{Name: "a", Hash: server.HashToken("a"), Verbs: []server.Verb{server.Read}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for token, status := range map[string]int{"": 401, "a": 403} {
		r := httptest.NewRequest("POST", "/v1/semaphores/db/leases?capacity=1", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "laptop"}}}}}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("token %q: status %d, want %d", token, w.Code, status)
		}
	}
}

// TestBatch_SubtractsTheWaitOfOtherItems checks that a lease that was lost while other items of
// the batch waited is not returned.
func TestBatch_SubtractsTheWaitOfOtherItems(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/full/leases?capacity=1", "")
	a := s.want(200, "POST", "/v1/batch", `{"requests":[
		{"op":"acquire","semaphore":"short","capacity":1,"ttl":"300ms"},
		{"op":"acquire","semaphore":"long","capacity":1,"ttl":"15s"},
		{"op":"acquire","semaphore":"full","wait":"2s"}]}`)
	results := a.body["results"].([]any)
	if lease, found := results[0].(map[string]any)["lease"]; found {
		t.Errorf("reported as held: %v", lease)
	}
	if left := results[1].(map[string]any)["lease"].(map[string]any)["valid_for"].(float64); left > 8.1 {
		t.Errorf("valid for %v", left)
	}
}

// TestHold_RejectsAnIdempotencyKey checks that two connections cannot share a lease: it would be
// released when the first one ends.
func TestHold_RejectsAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(400, "POST", "/v1/semaphores/db/leases?capacity=1&hold=connection&wait=1s", "", header{"Idempotency-Key", "k"})
}

// TestIdempotencyKey_IsPerPrincipal checks that two principals with the same key do not share a
// lease.
func TestIdempotencyKey_IsPerPrincipal(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{{Name: "a", Hash: server.HashToken("a"), Verbs: server.Verbs()}, {Name: "b", Hash: server.HashToken("b"), Verbs: server.Verbs()}}})
	s.auth = "a"
	first := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", header{"Idempotency-Key", "1"}).lease()
	s.auth = "b"
	if second := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", header{"Idempotency-Key", "1"}).lease(); second == first {
		t.Error("two clients have one lease")
	}
}

// TestHolder_IsNoKey checks that a forged key in the holder's text is not used as a key.
func TestHolder_IsNoKey(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	s := open(t, store, server.Options{})
	first := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", header{"Idempotency-Key", "1"})
	snapshot, err := store.Inspect(t.Context(), "db")
	if err != nil || snapshot.Leases[0].Details.Key == "" {
		t.Fatal(snapshot, err)
	}
	s.want(204, "DELETE", "/v1/semaphores/db/leases/"+first.lease(), "")
	key := snapshot.Leases[0].Details.Key
	for _, text := range []string{key, "key=" + key, " [key=" + key + "]", snapshot.Leases[0].Details.Encode()} {
		forged := s.want(201, "POST", "/v1/semaphores/db/leases?holder="+url.QueryEscape(text), "").lease()
		real := s.want(201, "POST", "/v1/semaphores/db/leases", "", header{"Idempotency-Key", "1"}).lease()
		if real == forged {
			t.Errorf("holder %q is used as a key", text)
		}
		s.want(204, "DELETE", "/v1/semaphores/db/leases/"+forged, "")
		s.want(204, "DELETE", "/v1/semaphores/db/leases/"+real, "")
	}
}

func TestRPC_NegativeWeight(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	capacity := int64(3)
	_, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db", Weight: -2, Settings: &semav1.Settings{Capacity: &capacity}})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("error %v", err)
	}
}

// TestBatch_RejectsUnknownFields checks that a misspelt field in a batch is an error.
func TestBatch_RejectsUnknownFields(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	a := s.want(200, "POST", "/v1/batch", `{"requests":[{"op":"acquire","semaphore":"db","capacity":5,"wieght":3}]}`)
	if !strings.Contains(a.text, "wieght") {
		t.Error(a.text)
	}
}

// TestListen_NotifiesOnlyOwnSemaphores checks that a listener is notified only about semaphores
// that it may use, whichever instance it names.
func TestListen_NotifiesOnlyOwnSemaphores(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{
		{Name: "all", Hash: server.HashToken("all"), Verbs: server.Verbs()}, {Name: "ci", Hash: server.HashToken("ci"), Prefix: "ci-", Verbs: []server.Verb{server.Acquire}},
		{Name: "look", Hash: server.HashToken("look"), Prefix: "ci-", Verbs: []server.Verb{server.Read}}}})
	s.auth = "all"
	for _, name := range []string{"secret", "ci-a"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=1", "")
	}
	instance := s.want(200, "GET", "/v1/semaphores/ci-a", "").body["holders"].([]any)[0].(map[string]any)["instance"].(string)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	client := semav1connect.NewStoreServiceClient(s.http.Client(), s.url, connect.WithInterceptors(bearer("ci")))
	request, err := http.NewRequest("POST", s.url+semav1connect.StoreServiceExamineProcedure, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer look")
	response, err := s.http.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a token with a prefix examined the store: %s", response.Status)
	}
	stream, err := client.Listen(ctx, &semav1.StoreListenRequest{Instance: []byte(instance)})
	if err != nil {
		t.Fatal(err)
	}
	stream.Receive()
	for _, name := range []string{"secret", "ci-a"} {
		s.want(204, "POST", "/v1/semaphores/"+name+"/leases/"+s.leases(name)[0]+"/revoke", "")
	}
	for stream.Receive() {
		names := fmt.Sprint(stream.Msg().Names)
		if strings.Contains(names, "secret") {
			t.Error("notified about", names)
		}
		if strings.Contains(names, "ci-a") {
			break
		}
	}
	cancel()
	stream.Close()
}

type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }
func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		c.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return c
	}
}

// TestServer_ClientThatDoesNotRead checks that the server does not wait for a client that does not
// read its response.
func TestServer_ClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	s := open(t, store, server.Options{})
	session := sessiontest.Begin(t, store, "big", protocol.Config{Capacity: 1 << 20})
	var ops []protocol.Op
	for i := range 20_000 {
		ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(i + 1), Weight: 1, Details: &protocol.Details{Holder: strings.Repeat("x", 500)}})
	}
	session.Send(ops...)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := func() string { // completed requests of Go clients
		_, rest, _ := strings.Cut(s.send("GET", "/metrics", "").text, `sema_http_request_seconds_count{route="RPC rpc store"} `)
		count, _, _ := strings.Cut(rest, "\n")
		return count
	}
	before := ended()
	const body = `{"name":"big"}` // Go clients get a whole snapshot
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		semav1connect.StoreServiceInspectProcedure, len(body), body)
	if _, err := c.Read(make([]byte, 1)); err != nil { // the response is being sent
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ended() == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server waits for a client that does not read")
		}
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) || n > 12<<20 {
		t.Errorf("%d bytes were buffered, %v", n, err)
	}
}
