package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
)

func tenant(name, prefix string) server.Token {
	return server.Token{Name: name, Hash: server.HashToken(name + "-0123456789"), Prefix: prefix, Verbs: server.Verbs()}
}

// TestMetrics_ShareOfATenant checks that a tenant with many semaphores in use leaves another one
// series, and that the dashboard names the tenant.
func TestMetrics_ShareOfATenant(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{
		Tokens: []server.Token{tenant("greedy", "g/"), tenant("small", "s/"), tenant("ops", "")}, Limits: server.Limits{Series: 6},
	})
	s.auth = "greedy-0123456789"
	for i := range 20 {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/g%%2F%d/leases?capacity=1", i), "")
	}
	s.auth = "small-0123456789"
	for i := range 3 {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/s%%2F%d/leases?capacity=1", i), "")
	}
	text := s.want(200, "GET", "/metrics", "").text
	for i := range 3 {
		if want := line("sema_acquires_total", `outcome="acquired"`, fmt.Sprint("s/", i)) + "1\n"; !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, others := range []string{`semaphore="g/`, "sema_http_requests_total", "go_goroutines", "process_", "sema_semaphores_measured"} {
		if strings.Contains(text, others) {
			t.Errorf("a token with a prefix sees %s", others)
		}
	}
	s.auth = "ops-0123456789"
	if text := s.want(200, "GET", "/metrics", "").text; !strings.Contains(text, "sema_http_requests_total") || !strings.Contains(text, "sema_semaphores_listed 1") {
		t.Error("a token without a prefix sees the figures of the server")
	}
	ops := s.tab()
	ops.login("ops-0123456789")
	waitFor(t, "the page counts all semaphores", func() bool {
		return strings.Contains(ops.get(200, "/ui/store").text, "17 semaphores have no metrics")
	})
	ops.get(200, "/ui/store").contains(t, "limits.series is 6", "token:greedy has 3 of these series", "limits.names")
}

// blind is a store that cannot be listed: it replies too late.
type blind struct{ fleet.Store }

func (blind) List(ctx context.Context, _ protocol.ListQuery) ([]protocol.Summary, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestMetrics_WithoutTheStore checks that a scrape has counters and no gauges while the store
// cannot be listed.
func TestMetrics_WithoutTheStore(t *testing.T) {
	t.Parallel()
	s := open(t, blind{memstore.New()}, server.Options{Declared: []server.Declaration{{Name: "db", Capacity: 2}}})
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	text := s.want(200, "GET", "/metrics", "").text
	if strings.Contains(text, "sema_permits_in_use{") || !strings.Contains(text, line("sema_acquires_total", `outcome="acquired"`, "db")+"1\n") || !strings.Contains(text, "\nsema_semaphores_listed 0\n") {
		t.Error(text)
	}
}

// TestHistory_KindsOfEvents checks the events of a Go client that is an operator, and that a change
// which changes nothing is no event.
func TestHistory_KindsOfEvents(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	db, err := s.dial("").Semaphore("db", 4)
	if err != nil {
		t.Fatal(err)
	}
	p, err := db.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Release(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{db.Drain(t.Context()), db.Resume(t.Context()), db.Resize(t.Context(), 6)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 6}`)
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 6, "max_waiters": 9}`)
	s.want(200, "PUT", "/v1/semaphores/db", `{"draining": true}`)
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 7, "draining": false}`)
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 8}`)
	var kinds []string
	for _, e := range s.want(200, "GET", "/v1/semaphores/db/history", "").body["events"].([]any) {
		kinds = append(kinds, e.(map[string]any)["kind"].(string))
	}
	if got, want := strings.Join(kinds, " "), "restart drain resume resize configure drain resume resize"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// TestAdvice_OfPolls checks that a client which tries in a loop does not count as load.
func TestAdvice_OfPolls(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for i := range 25 {
		lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
		for range 10 {
			s.want(429, "POST", "/v1/semaphores/db/leases", "")
		}
		if i%5 == 0 {
			time.Sleep(20 * time.Millisecond) // a mean hold that is not 0
		}
		s.want(204, "DELETE", lease.header.Get("Location"), "")
	}
	a := s.want(200, "GET", "/v1/semaphores/db/advice", "")
	arrivals, rejected := a.body["arrivals_per_second"].(float64), a.body["rejected_per_second"].(float64)
	if rejected < 9*arrivals || a.body["load"].(float64) > 1 || a.body["needed"].(float64) > 2 || !strings.Contains(a.text, "rejected at once") {
		t.Error(a.text)
	}
}

// skewed is a store whose clock is ahead of that of the server.
type skewed struct {
	fleet.Store
	by time.Duration
}

func (s skewed) Ping(context.Context) (time.Time, error)          { return time.Now().Add(s.by), nil }
func (s skewed) Examine(context.Context) ([]fleet.Finding, error) { return nil, nil }

func (s skewed) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	snapshot, err := s.Store.Inspect(ctx, name)
	for i := range snapshot.Leases {
		snapshot.Leases[i].Since += protocol.Micros(s.by / time.Microsecond)
	}
	for i := range snapshot.Queue {
		snapshot.Queue[i].Since += protocol.Micros(s.by / time.Microsecond)
	}
	return snapshot, err
}

// TestTimes_OfAStoreWithAnotherClock checks ages of leases and waits, and that short waits are no
// deadlock.
func TestTimes_OfAStoreWithAnotherClock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := open(t, skewed{memstore.New(), by}, server.Options{})
			s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
			go s.send("POST", "/v1/semaphores/db/leases?wait=1m", "")
			waitFor(t, "ages in time of the store", func() bool {
				m, _ := s.want(200, "GET", "/v1/semaphores/db", "").body["times"].(map[string]any)
				head, _ := m["head_age"].(float64)
				hold, _ := m["oldest_hold"].(float64)
				most := time.Since(began).Seconds()
				return head > 0 && head <= most && hold > 0 && hold <= most
			})
		})
	}
}
