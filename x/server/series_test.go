package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/server"
)

// line returns the series of a metric of a semaphore.
func line(metric, labels, semaphore string) string {
	if labels != "" {
		labels = "," + labels
	}
	return fmt.Sprintf(`%s{backend="store"%s,semaphore=%q} `, metric, labels, semaphore)
}

// TestMetrics_OfASemaphore checks the series of a semaphore that a Go client and a client of
// JSON use.
func TestMetrics_OfASemaphore(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "db", Capacity: 2}, {Name: "idle", Capacity: 7}}})
	client := s.dial("")
	db, err := client.Semaphore("db", 2)
	if err != nil {
		t.Fatal(err)
	}
	p, err := db.Acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	s.want(429, "POST", "/v1/semaphores/db/leases?wait=50ms", "")
	waited := make(chan jsonReply)
	go func() { waited <- s.send("POST", "/v1/semaphores/db/leases?wait=30s", "") }()
	for _, want := range []string{
		line("sema_permits_capacity", "", "db") + "2", line("sema_permits_in_use", "", "db") + "2", line("sema_waiters", "", "db") + "1",
		line("sema_draining", "", "db") + "0",
		line("sema_acquires_total", `outcome="timeout"`, "db") + "1", line("sema_acquires_total", `outcome="rejected"`, "db") + "1",
		line("sema_acquire_rejections_total", `reason="full"`, "db") + "1",
		line("sema_acquire_rejections_total", `reason="full"`, "idle") + "0",
		line("sema_acquires_total", `outcome="acquired"`, "idle") + "0", line("sema_hold_seconds_count", "", "idle") + "0",
	} {
		waitFor(t, want, func() bool { return s.metric(want) })
	}
	for _, metric := range []string{"sema_head_of_queue_age_seconds", "sema_oldest_hold_seconds"} {
		if s.metric(line(metric, "", "db") + "0") {
			t.Errorf("%s is 0", metric)
		}
	}
	if err := fleet.Release(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	lease := <-waited
	s.want(200, "PUT", "/v1/semaphores/db/leases/"+lease.lease(), "")
	s.want(204, "POST", lease.revoke(), `{"at_once": true, "why": "test"}`)
	s.want(410, "PUT", "/v1/semaphores/db/leases/"+lease.lease(), "")
	for _, want := range []string{
		line("sema_acquires_total", `outcome="acquired"`, "db") + "2", line("sema_acquire_wait_seconds_count", `outcome="acquired"`, "db") + "2",
		line("sema_acquire_wait_seconds_count", `outcome="timeout"`, "db") + "1",
		line("sema_hold_seconds_count", "", "db") + "2", line("sema_leases_lost_total", `reason="revoked"`, "db") + "1",
		line("sema_lease_renewals_total", `result="ok"`, "db"),
	} {
		waitFor(t, want, func() bool { return strings.Contains(s.want(200, "GET", "/metrics", "").text, "\n"+want) })
	}
}

// TestMetrics_ExpiredLease checks that a lease whose client has disappeared is counted as lost.
func TestMetrics_ExpiredLease(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=200ms", "")
	lost := line("sema_leases_lost_total", `reason="expired"`, "db") + "1"
	waitFor(t, lost, func() bool { return s.metric(lost) })
}

// TestMetrics_NativeHistograms checks the format that Prometheus asks for to scrape native
// histograms.
func TestMetrics_NativeHistograms(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	request, err := http.NewRequest("GET", s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	families := scrape(t, s, request)
	h := families["sema_acquire_wait_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSchema() == 0 || len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 || len(h.GetBucket()) == 0 {
		t.Errorf("want native and classic buckets: %v", h)
	}
}

// TestMetrics_BoundedUnderManyNames checks that a tenant with 100,000 names neither exhausts the
// series nor pushes out those of declared semaphores, and sees no names of others.
func TestMetrics_BoundedUnderManyNames(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 requests")
	}
	const many, limit = 100_000, 50
	tenant := server.Token{Name: "tenant", Hash: server.HashToken("tenant-0123456789"), Prefix: "t/", Verbs: server.Verbs()}
	operator := server.Token{Name: "operator", Hash: server.HashToken("operator-0123456789"), Verbs: server.Verbs()}
	s := start(t, server.Options{
		Declared: []server.Declaration{{Name: "db", Capacity: 2}, {Name: "t/*", Capacity: 1, Window: time.Hour}}, Tokens: []server.Token{tenant, operator},
		Limits: server.Limits{Names: 4 * many, Held: 4 * many, Series: limit},
	})
	s.auth = "operator-0123456789"
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	for i := range many {
		r := httptest.NewRequest("POST", fmt.Sprintf("/v1/semaphores/t%%2F%d/leases", i), nil)
		r.Header.Set("Authorization", "Bearer tenant-0123456789")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 201 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	text := s.want(200, "GET", "/metrics", "").text
	lines := strings.Count(text, "\nsema_")
	t.Logf("%d names: %d lines of sema_, %d bytes", many+1, lines, len(text))
	if n := strings.Count(text, `sema_acquires_total{`); n > 5*(limit+2) || lines > 80*(limit+4) {
		t.Errorf("%d series of acquires, %d lines", n, lines)
	}
	for _, want := range []string{
		line("sema_acquires_total", `outcome="acquired"`, "db") + "1\n", line("sema_acquires_total", `outcome="acquired"`, "{other}") + fmt.Sprint(many-limit) + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	s.auth = "tenant-0123456789"
	if text := s.want(200, "GET", "/metrics", "").text; strings.Contains(text, `semaphore="db"`) || strings.Contains(text, `semaphore="{other}"`) || !strings.Contains(text, `semaphore="t/0"`) {
		t.Error("a tenant sees its own semaphores, and no others")
	}
}
