package server_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
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
	for _, line := range []string{`sema_acquires_total{backend="store",outcome="acquired",semaphore="db"} 1`, "sema_releases_total 1"} {
		if !s.metric(line) {
			t.Errorf("no %s in\n%s", line, s.counters())
		}
	}
}

// TestMetrics_ResponseWithoutContent checks that a response to which no handler writes counts with
// the status that the client receives.
func TestMetrics_ResponseWithoutContent(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1}`)
	r, err := http.Head(s.url + "/v1/semaphores/db/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 200 {
		t.Error(r.Status)
	}
	if !s.metric(`sema_http_requests_total{code="200",route="GET /v1/semaphores/{name}/watch"} 1`) {
		t.Error("the request is not counted with status 200")
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

// scrape returns the metric families of a response in the protobuf format.
func scrape(t *testing.T, s *site, r *http.Request) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := s.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	families := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	for {
		var one dto.MetricFamily
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return families
		} else if err != nil {
			t.Fatal(err)
		}
		families[one.GetName()] = &one
	}
}
