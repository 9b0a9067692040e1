package server_test

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

// TestMetrics_RepeatsCountOnce checks that a repeated request counts as one acquire, and a repeated
// release as one release.
func TestMetrics_RepeatsCountOnce(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := ""
	for range 3 {
		lease = s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2", "", header{"Idempotency-Key", "k"}).header.Get("Location")
	}
	for range 2 {
		s.want(204, "DELETE", lease, "")
	}
	for _, line := range []string{`sema_acquires_total{result="acquired"} 1`, "sema_releases_total 1"} {
		if !s.metric(line) {
			t.Errorf("no %s in\n%s", line, s.counters())
		}
	}
}

// TestMetrics_ReleaseAtAnotherServer checks that a release counts at the server that received it.
func TestMetrics_ReleaseAtAnotherServer(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	a, b := open(t, store, server.Options{}), open(t, store, server.Options{})
	lease := a.want(201, "POST", "/v1/semaphores/db/leases?capacity=2", "").header.Get("Location")
	b.want(204, "DELETE", lease, "")
	b.want(204, "DELETE", lease, "")
	a.want(410, "DELETE", lease, "")
	if !a.metric("sema_releases_total 0") || !b.metric("sema_releases_total 1") {
		t.Errorf("%s\n%s", a.counters(), b.counters())
	}
}

// counters returns the metrics of acquires and releases.
func (s *site) counters() string {
	s.t.Helper()
	var lines []string
	for line := range strings.Lines(s.want(200, "GET", "/metrics", "").text) {
		if strings.HasPrefix(line, "sema_acquires_total") || strings.HasPrefix(line, "sema_releases_total") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
