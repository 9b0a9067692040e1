package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
)

func TestTokens_Authorize(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{
		{Name: "jobs", Hash: server.HashToken("secret-1"), Prefix: "job-", Verbs: []server.Verb{server.Acquire, server.Read}},
		{Name: "ops", Hash: server.HashToken("secret-2"), Verbs: server.Verbs()},
	}})
	none := s.want(401, "POST", "/v1/semaphores/job-1/leases?capacity=1", "")
	if none.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%v", none.header)
	}
	s.auth = "guess"
	s.want(401, "GET", "/v1/semaphores", "")
	s.auth = "secret-1"
	a := s.want(201, "POST", "/v1/semaphores/job-1/leases?capacity=1", "")
	s.want(403, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	s.want(403, "PUT", "/v1/semaphores/job-1", `{"capacity": 2}`)
	if denied := s.want(200, "POST", "/v1/batch", `{"requests": [{"op": "acquire", "semaphore": "db", "capacity": 1}]}`); !strings.Contains(denied.text, "not allowed") {
		t.Error(denied.text)
	}
	s.auth = "secret-2"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	s.want(200, "PUT", "/v1/semaphores/job-1", `{"capacity": 2}`)
	shown := s.want(200, "GET", "/v1/semaphores/job-1", "")
	if !strings.Contains(shown.text, `"by":"jobs"`) {
		t.Errorf("%s does not name the holder of %s", shown.text, a.lease())
	}
	s.auth = "secret-1"
	list := s.want(200, "GET", "/v1/semaphores", "")
	if strings.Contains(list.text, `"db"`) || !strings.Contains(list.text, "job-1") {
		t.Errorf("%s: want only names with the prefix job-", list.text)
	}
	s.auth = ""
	s.want(200, "GET", "/livez", "")
	s.want(200, "GET", "/readyz", "")
	if log := s.log.String(); strings.Contains(log, "secret") || !strings.Contains(log, "who=ops") {
		t.Errorf("%s", log)
	}
	for _, bad := range []server.Token{{Name: "a", Hash: "secret"}, {Name: "a", Hash: "sha256:12"}, {Hash: server.HashToken("x")}, {Name: "a", Hash: server.HashToken("x"), Verbs: []server.Verb{"dance"}}} {
		if _, err := server.New(nil, server.Options{Tokens: []server.Token{bad}}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestServer_Leave checks that a server that is being stopped is not ready, rejects new acquires,
// and serves those that wait.
func TestServer_Leave(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	s := open(t, store, server.Options{})
	at := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "").header.Get("Location")
	var wg sync.WaitGroup
	wg.Go(func() {
		if a := s.want(503, "POST", "/v1/semaphores/db/leases?wait=30s", ""); a.header.Get("Retry-After") == "" || a.body["type"] != "/problems/leaving" {
			t.Errorf("%v %v", a.header, a.body)
		}
	})
	waitFor(t, "an acquire waits", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == 1.0 })
	s.want(200, "GET", "/readyz?verbose", "")
	s.Leave()
	if a := s.want(503, "GET", "/readyz", ""); !strings.Contains(a.text, "[-] accepting requests") || !strings.Contains(a.text, "[+] store") {
		t.Error(a.text)
	}
	s.want(200, "GET", "/livez", "")
	s.want(503, "POST", "/v1/semaphores/db/leases", "")
	s.want(200, "PUT", at, "") // holders can still renew
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// A downStore fails every read.
type downStore struct{ fleet.Store }

func (downStore) Inspect(context.Context, string) (protocol.Snapshot, error) {
	return protocol.Snapshot{}, errors.New("connection refused")
}

func TestServer_StoreIsDown(t *testing.T) {
	t.Parallel()
	s := open(t, downStore{memstore.New()}, server.Options{})
	if a := s.want(503, "GET", "/readyz", ""); !strings.Contains(a.text, "[-] store: connection refused") {
		t.Error(a.text)
	}
	s = open(t, downStore{memstore.New()}, server.Options{Tokens: []server.Token{{Name: "ops", Hash: server.HashToken("secret"), Verbs: server.Verbs()}}})
	if a := s.want(503, "GET", "/readyz?verbose", ""); !strings.Contains(a.text, "[-] store: does not respond") || !strings.Contains(s.log.String(), "connection refused") {
		t.Errorf("an unauthenticated client reads %q; the log is %s", a.text, s.log)
	}
	s.auth = "secret"
	if a := s.want(503, "GET", "/readyz", ""); !strings.Contains(a.text, "[-] store: connection refused") {
		t.Error(a.text)
	}
}

func TestLimits_OfTheServer(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Limits: server.Limits{Waiting: 1, Streams: 1, Body: 100}})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	var wg sync.WaitGroup
	wg.Go(func() { s.want(503, "POST", "/v1/semaphores/db/leases?wait=30s", "") })
	waitFor(t, "an acquire waits", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == 1.0 })
	if a := s.want(503, "POST", "/v1/semaphores/db/leases?wait=30s", ""); !strings.Contains(a.text, "limits.waiting of this server is 1,") {
		t.Error(a.text)
	}
	s.want(503, "POST", "/v1/semaphores/db/leases", "") // an acquire that does not queue counts, too
	s.want(413, "POST", "/v1/semaphores/db/leases", `{"holder": "`+strings.Repeat("x", 200)+`"}`)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestMetrics_Counters(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	a := s.want(200, "GET", "/metrics", "")
	for _, line := range []string{
		`sema_acquires_total{backend="store",outcome="acquired",semaphore="db"} 1`, `sema_acquires_total{backend="store",outcome="rejected",semaphore="db"} 1`, `sema_build_info{version="test"} 1`, "sema_http_waiting 0",
		`sema_http_requests_total{code="429",route="POST /v1/semaphores/{name}/leases"} 1`,
	} {
		if !strings.Contains(a.text, line) {
			t.Errorf("no %s", line)
		}
	}
	if a := s.want(200, "GET", "/", ""); !strings.Contains(a.text, "curl") {
		t.Error(a.text)
	}
	s.want(200, "GET", "/version", "")
}

// TestServer_RejectsRequestsOfOtherSites checks that a page of another site cannot make a browser
// change anything.
func TestServer_RejectsRequestsOfOtherSites(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, h := range []header{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		if a := s.want(403, "POST", "/v1/semaphores/db/leases?capacity=1", "", h); !strings.Contains(a.text, "another site") {
			t.Error(a.text)
		}
	}
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "", header{"Origin", s.url})
	for host, status := range map[string]int{"evil.example": 403, "evil.example:80": 403, "localhost:1": 200, "127.0.0.1": 200, "[::1]:9": 200, "sema.localhost": 200} {
		request, err := http.NewRequest("GET", s.url+"/v1/semaphores", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := s.http.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("as %s: %d, want %d", host, response.StatusCode, status)
		}
	}
}
