package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

func TestLease_Lifecycle(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	a := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&holder=cron", "")
	at := a.header.Get("Location")
	if at != "/v1/semaphores/db/leases/"+a.lease() || a.body["ttl"] != 15.0 || a.body["weight"] != 1.0 {
		t.Errorf("%s, %v", at, a.body)
	}
	full := s.want(429, "POST", "/v1/semaphores/db/leases", "")
	if full.header.Get("Retry-After") == "" || full.body["capacity"] != 1.0 || full.body["in_use"] != 1.0 || full.body["type"] != "/problems/full" {
		t.Errorf("%v, %v", full.header, full.body)
	}
	if again := s.want(200, "PUT", at, ""); again.lease() != a.lease() {
		t.Errorf("%v", again.body)
	}
	shown := s.want(200, "GET", "/v1/semaphores/db", "")
	holder := shown.body["holders"].([]any)[0].(map[string]any)
	if holder["lease"] != a.body["lease"] || holder["holder"] != "cron" {
		t.Errorf("%v", holder)
	}
	if proof := a.lease()[strings.LastIndex(a.lease(), ".")+1:]; len(proof) < 32 || strings.Contains(shown.text, proof) {
		t.Errorf("the listing contains the id of a lease: %s", shown.text)
	}
	s.want(204, "DELETE", at, "")
	s.want(204, "DELETE", at, "") // repeated
	s.want(410, "PUT", at, "")
	s.want(201, "POST", "/v1/semaphores/db/leases", `{"weight": 1, "wait": 0.5}`)
	timeout := s.want(429, "POST", "/v1/semaphores/db/leases", `{"wait": "20ms"}`)
	if timeout.body["type"] != "/problems/timeout" {
		t.Errorf("%v", timeout.body)
	}
	s.want(422, "POST", "/v1/semaphores/db/leases?weight=2", "")
}

func TestAcquire_LongPollIsGranted(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	at := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "").header.Get("Location")
	var wg sync.WaitGroup
	wg.Go(func() { s.want(201, "POST", "/v1/semaphores/db/leases?wait=30s", "") })
	waitFor(t, "an acquire waits", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == 1.0 })
	s.want(204, "DELETE", at, "")
	wg.Wait()
}

// TestAcquire_DisconnectedClientIsNotGranted checks that a client that has disconnected is not
// granted anything.
func TestAcquire_DisconnectedClientIsNotGranted(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	at := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "").header.Get("Location")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		request, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/semaphores/db/leases?wait=30s", nil)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			t.Error("there was a response")
		}
	}()
	waiting := func(n float64) func() bool {
		return func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == n }
	}
	waitFor(t, "an acquire waits", waiting(1))
	cancel()
	<-gone
	waitFor(t, "no acquire waits", waiting(0))
	s.want(204, "DELETE", at, "")
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	http.DefaultClient.CloseIdleConnections()
}

func TestIdempotencyKey_ReturnsTheSameLease(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	key := header{"Idempotency-Key", "order 17"}
	first := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", key)
	again := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5", "", key)
	if first.lease() != again.lease() {
		t.Errorf("%s, then %s", first.lease(), again.lease())
	}
	if used := s.want(200, "GET", "/v1/semaphores/db", "").body["in_use"]; used != 1.0 {
		t.Errorf("%v in use", used)
	}
	s.want(400, "POST", "/v1/semaphores/db/leases", "", header{"Idempotency-Key", strings.Repeat("x", 300)})
}

// TestServer_TwoShareOneStore checks that two servers over one store are one service.
func TestServer_TwoShareOneStore(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	one := open(t, store, server.Options{})
	two := open(t, keepsOpen{store}, server.Options{})
	a := one.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	at := a.header.Get("Location")
	two.want(429, "POST", "/v1/semaphores/db/leases", "")
	two.want(200, "PUT", at, "")
	one.want(200, "PUT", at, "")
	two.want(204, "DELETE", at, "")
	one.want(410, "PUT", at, "")
	two.want(201, "POST", "/v1/semaphores/db/leases", "")
}

type keepsOpen struct{ *memstore.Store }

func (keepsOpen) Close() error { return nil }

func TestHold_RenewsWhileTheConnectionLasts(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1, "ttl": "1s"}`)
	lines, _ := s.hold(t)
	for range 3 { // the lease is renewed
		var lease struct{ ID string }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &lease) != nil || lease.ID == "" {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	if full := s.want(429, "POST", "/v1/semaphores/db/leases", ""); full.header.Get("RateLimit") != `"db";r=0` || full.header.Get("RateLimit-Policy") != `"db";q=1` {
		t.Errorf("%v", full.header)
	}
	s.want(400, "POST", "/v1/semaphores/db/leases?hold=forever", "")
}

// TestHold_ReleasesWhenTheConnectionEnds uses a TTL that is longer than the test: the lease
// is released, and does not expire.
func TestHold_ReleasesWhenTheConnectionEnds(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1, "ttl": "1h"}`)
	lines, disconnect := s.hold(t)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	disconnect()
	waitFor(t, "the permit is released", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["in_use"] == 0.0 })
}

// hold acquires a lease that lasts as long as a connection. It returns the lines of the
// response and a function that ends the connection.
func (s *site) hold(t *testing.T) (lines *bufio.Scanner, disconnect func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/semaphores/db/leases?hold=connection", nil)
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Do(request)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	t.Cleanup(func() {
		cancel()
		response.Body.Close()
	})
	return bufio.NewScanner(response.Body), func() {
		client.CloseIdleConnections()
		cancel()
	}
}

func TestBatch_ResultsInOrder(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	a := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2", "")
	b := s.want(200, "POST", "/v1/batch", `{"requests": [
		{"op": "renew", "semaphore": "db", "id": "`+a.lease()+`"},
		{"op": "acquire", "semaphore": "gpu", "capacity": 3, "weight": 2},
		{"op": "acquire", "semaphore": "gpu", "capacity": 3, "weight": 9},
		{"op": "release", "semaphore": "db", "id": "`+gone+`"},
		{"op": "dance", "semaphore": "db"}]}`)
	results := b.body["results"].([]any)
	for i, want := range []struct {
		key    string
		status float64
	}{{"lease", 0}, {"lease", 0}, {"problem", 422}, {"problem", 410}, {"problem", 400}} {
		got := results[i].(map[string]any)[want.key]
		if got == nil || want.key == "problem" && got.(map[string]any)["status"] != want.status {
			t.Errorf("result %d is %v, want %+v", i, results[i], want)
		}
	}
	s.want(400, "POST", "/v1/batch", `{"requests": []}`)
	s.want(400, "POST", "/v1/batch", `{}`)
}

func TestRequests_ErrorsContainAdvice(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Limits: server.Limits{Body: 1000, MaxWait: time.Minute}})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/semaphores/db/leases?weigth=1", "", 400, "weight=1"},
		{"POST", "/v1/semaphores/db/leases?weight=x", "", 400, "weight"},
		{"POST", "/v1/semaphores/db/leases?weight=0", "", 400, "weight"},
		{"POST", "/v1/semaphores/db/leases?wait=soon", "", 400, "wait"},
		{"POST", "/v1/semaphores/db/leases?wait=2h", "", 400, "1m0s at most"},
		{"POST", "/v1/semaphores/db/leases?wait=-1s", "", 400, "0 or more"},
		{"POST", "/v1/semaphores/db/leases?ttl=2h", "", 400, "1h0m0s at most"},
		{"POST", "/v1/semaphores/a%20b/leases", "", 400, "printable ASCII"},
		{"POST", "/v1/semaphores/db/leases", `{"weigth": 1}`, 400, "unknown field"},
		{"POST", "/v1/semaphores/db/leases", `nonsense`, 400, "JSON"},
		{"POST", "/v1/semaphores/db/leases?holder=" + strings.Repeat("x", 900), "", 400, "800 at most"},
		{"PUT", "/v1/semaphores/db/leases/what", "", 400, "id that acquire returned"},
		{"PUT", "/v1/semaphores/none/leases/" + gone, "", 410, "lost"},
		{"POST", "/v1/semaphores/none/leases", "", 404, "capacity"},
		{"PUT", "/v1/semaphores/none", `{}`, 400, "specify a capacity"},
		{"GET", "/v1/semaphores/none", "", 404, "acquire with a capacity creates it"},
		{"POST", "/v1/semaphores/none/drain", "", 404, "no such semaphore"},
		{"PUT", "/v1/semaphores/db", `{"capacity": -1}`, 400, "capacity"},
	} {
		a := s.want(c.status, c.method, c.path, c.body)
		if !strings.Contains(a.text, c.want) {
			t.Errorf("%s %s %s: %s\nhas no %q", c.method, c.path, c.body, a.text, c.want)
		}
	}
}
