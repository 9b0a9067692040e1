package server_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// internals matches words of the implementation, which clients should not see.
var internals = regexp.MustCompile(`server\.|leasing\.|strconv|json:|Go (struct|value)|unmarshal|file does not exist|permission denied|unsupported operation|time: |dial tcp|net/http|http: |context (canceled|deadline)|goroutine|0xc0|%!|invalid argument|sema: |engine`)

// wantPlain fails if a text contains such words.
func wantPlain(t testing.TB, text string) {
	t.Helper()
	if found := internals.FindString(text); found != "" {
		t.Errorf("%s\ncontains %q", text, found)
	}
}

// TestProblem_Types checks that each problem has a type, and each type one title.
func TestProblem_Types(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	types := s.ProblemTypes()
	if len(types) < 10 {
		t.Fatalf("%v", types)
	}
	for name, status := range types {
		a := s.want(200, "GET", name, "")
		if a.body["type"] != name || a.body["status"] != float64(status) || a.body["title"] == "" || a.body["advice"] == "" {
			t.Errorf("%s: %v", name, a.body)
		}
	}
	s.want(404, "GET", "/problems/no-such-type", "")
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	for _, c := range []struct {
		status             int
		method, path, body string
		kind               string
	}{
		{429, "POST", "/v1/semaphores/db/leases", "", "full"},
		{429, "POST", "/v1/semaphores/db/leases?wait=1ms", "", "timeout"},
		{422, "POST", "/v1/semaphores/db/leases?weight=2", "", "too-large"},
		{404, "GET", "/v1/semaphores/none", "", "no-such-semaphore"},
		{404, "DELETE", "/v1/semaphores/none", "", "no-such-semaphore"},
		{404, "POST", "/v1/semaphores/none/leases", "", "no-such-semaphore"},
		{404, "POST", "/v1/semaphores/db/leases/1/revoke", "", "no-such-lease"},
		{410, "PUT", "/v1/semaphores/db/leases/" + gone, "", "lease-lost"},
		{400, "PUT", "/v1/semaphores/db/leases/x", "", "invalid-request"},
		{400, "PUT", "/v1/semaphores/a%20b/leases/" + gone, "", "invalid-request"},
		{404, "GET", "/nowhere", "", "no-such-path"},
		{413, "POST", "/v1/semaphores/db/leases", strings.Repeat(" ", 70_000), "request-too-large"},
	} {
		a := s.want(c.status, c.method, c.path, c.body)
		if a.body["type"] != "/problems/"+c.kind {
			t.Errorf("%s %s: %v", c.method, c.path, a.body)
		}
		explained := s.want(200, "GET", "/problems/"+c.kind, "")
		if a.body["title"] != explained.body["title"] || a.body["status"] != explained.body["status"] {
			t.Errorf("%v is explained as %v", a.body, explained.body)
		}
	}
}

// TestProblem_RPCWords checks that RPC has the same texts.
func TestProblem_RPCWords(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	ctx := t.Context()
	for _, call := range []func() error{
		func() error { _, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "none"}); return err },
		func() error { _, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "db"}); return err },
		func() error {
			_, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "db", Weight: -1})
			return err
		},
		func() error { _, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "a b"}); return err },
		func() error { _, err := c.Info(ctx, &semav1.InfoRequest{Semaphore: "none"}); return err },
		func() error { _, err := c.Delete(ctx, &semav1.DeleteRequest{Semaphore: "none"}); return err },
		func() error { _, err := c.Drain(ctx, &semav1.DrainRequest{Semaphore: "none"}); return err },
		func() error {
			_, err := c.Revoke(ctx, &semav1.RevokeRequest{Semaphore: "db", Lease: 1})
			return err
		},
		func() error { _, err := c.Renew(ctx, &semav1.RenewRequest{Semaphore: "db", Id: "x"}); return err },
		func() error { _, err := c.Configure(ctx, &semav1.ConfigureRequest{Semaphore: "none"}); return err },
	} {
		err := call()
		if err == nil || connect.CodeOf(err) == connect.CodeUnknown {
			t.Errorf("%v", err)
			continue
		}
		wantPlain(t, err.Error())
	}
}

// TestRPC_SecondRelease checks that a repeated release at the same server succeeds, as over JSON.
// A release of a lost lease fails.
func TestRPC_SecondRelease(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	a, err := c.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db", Settings: &semav1.Settings{Capacity: new(int64(1))}})
	if err != nil {
		t.Fatal(err)
	}
	release := &semav1.ReleaseRequest{Semaphore: "db", Id: a.Lease.Id}
	for i := range 3 {
		if _, err := c.Release(t.Context(), release); err != nil {
			t.Errorf("release %d: %v", i+1, err)
		}
	}
	s.want(204, "DELETE", "/v1/semaphores/db/leases/"+a.Lease.Id, "")
	if _, err := c.Release(t.Context(), &semav1.ReleaseRequest{Semaphore: "db", Id: gone}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
	s.want(410, "DELETE", "/v1/semaphores/db/leases/"+gone, "")
	b, err := c.Batch(t.Context(), &semav1.BatchRequest{Requests: []*semav1.BatchItem{{Request: &semav1.BatchItem_Release{Release: release}}}})
	if err != nil || b.Results[0].GetResult() != nil {
		t.Errorf("%v, %v", b, err)
	}
}

// TestRPC_Rejections checks that rejected RPC clients are sent how to authenticate, or that they
// are not allowed.
func TestRPC_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{{Name: "ops", Hash: server.HashToken("secret"), Verbs: server.Verbs()}}})
	for _, procedure := range []string{semav1connect.SemaServiceListProcedure, semav1connect.StoreServiceListProcedure} {
		for _, kind := range []string{"application/json", "application/proto", "application/grpc-web+proto"} {
			response := s.post(procedure, header{"Content-Type", kind})
			if response.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s by %s: %s %v", procedure, kind, response.Status, response.Header)
			}
		}
		response := s.post(procedure, header{"Content-Type", "application/json"}, header{"Origin", "https://evil.example"})
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s from another site: %s", procedure, response.Status)
		}
		response = s.post(procedure, header{"Content-Type", "application/json"}, header{"Authorization", "bEARER secret"})
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s with a scheme in upper case: %s", procedure, response.Status)
		}
	}
	full := s.post(semav1connect.SemaServiceAcquireProcedure, header{"Content-Type", "application/json"}, header{"Authorization", "Bearer secret"})
	if full.StatusCode != http.StatusBadRequest {
		t.Errorf("%s", full.Status)
	}
}

func TestTokens_SchemeIsCaseInsensitive(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{{Name: "ops", Hash: server.HashToken("secret"), Verbs: server.Verbs()}}})
	for _, value := range []string{"Bearer secret", "bearer secret", "BEARER secret", "Bearer  secret"} {
		s.want(200, "GET", "/v1/semaphores", "", header{"Authorization", value})
	}
	for _, value := range []string{"Bearer Secret", "Bearersecret", "Basic secret", "secret", "Bearer"} {
		s.want(401, "GET", "/v1/semaphores", "", header{"Authorization", value})
	}
}

// post calls a procedure with an empty message.
func (s *site) post(procedure string, headers ...header) *http.Response {
	s.t.Helper()
	request, err := http.NewRequest("POST", s.url+procedure, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		if strings.Contains(h.value, "proto") {
			request.Body, request.ContentLength = http.NoBody, 0
		}
		request.Header.Set(h.key, h.value)
	}
	response, err := s.http.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	return response
}

// stuck is a store whose Inspect returns when its context ends.
type stuck struct {
	fleet.Store
	stuck chan struct{}
}

func (s *stuck) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	select {
	case s.stuck <- struct{}{}:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return protocol.Snapshot{}, ctx.Err()
}

// TestProblem_RetryAfterInABatch checks the problem of a batch item: it has no header, so the
// problem contains when to retry.
func TestProblem_RetryAfterInABatch(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "mails", Capacity: 4, Window: time.Minute}}})
	s.want(201, "POST", "/v1/semaphores/mails/leases?weight=4", "")
	alone := s.want(429, "POST", "/v1/semaphores/mails/leases?weight=2", "")
	alone.wantRetry(t, 59, 60, "full")
	a := s.want(200, "POST", "/v1/batch", `{"requests": [{"op": "acquire", "semaphore": "mails", "weight": 2}, {"op": "acquire", "semaphore": "none"}]}`)
	for i, want := range []bool{true, false} {
		problem := a.body["results"].([]any)[i].(map[string]any)["problem"].(map[string]any)
		if after, given := problem["retry_after"].(float64); given != want || given && (after < 59 || after > 76) {
			t.Errorf("%v: want retry_after: %v", problem, want)
		}
	}
}

// TestProblem_RPCVersion checks that RPC uses versions, not HTTP headers.
func TestProblem_RPCVersion(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`)
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	for name, want := range map[string]string{"db": "it has version 1", "none": "it does not exist"} {
		_, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: name, Version: 9, Settings: &semav1.Settings{Capacity: new(int64(4))}})
		if connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "If-Match") || strings.Contains(err.Error(), "GET") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
