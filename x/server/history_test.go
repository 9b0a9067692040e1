package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

// TestTimes_OfASemaphore checks the ages, percentiles and needs in the API.
func TestTimes_OfASemaphore(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=32&weight=24", "")
	s.want(204, "DELETE", lease.header.Get("Location"), "")
	s.want(201, "POST", "/v1/semaphores/db/leases?weight=24", "")
	go s.send("POST", "/v1/semaphores/db/leases?weight=20&wait=1m", "")
	times := func(path string) (map[string]any, map[string]any) {
		body := s.want(200, "GET", path, "").body
		if all, list := body["semaphores"]; list {
			body = all.([]any)[0].(map[string]any)
		}
		times, _ := body["times"].(map[string]any)
		return body, times
	}
	for _, path := range []string{"/v1/semaphores/db", "/v1/semaphores"} {
		waitFor(t, "the first waiter needs 20", func() bool { _, m := times(path); return m["first_needs"] == 20.0 })
		waitFor(t, "its age rises", func() bool { _, m := times(path); return m["head_age"].(float64) > 0.05 })
		body, m := times(path)
		for _, key := range []string{"oldest_hold", "wait_p50", "wait_p99", "hold_p50", "hold_p99"} {
			if v, ok := m[key].(float64); !ok || v < 0 || v > 60 {
				t.Errorf("%s: %s is %v", path, key, m[key])
			}
		}
		if m["grants_per_second"].(float64) <= 0 || body["in_use"] != 24.0 {
			t.Errorf("%s: %v", path, body)
		}
	}
}

// TestHistory_OfASemaphore checks samples and events, and that they survive a restart with the
// same directory.
func TestHistory_OfASemaphore(t *testing.T) {
	t.Parallel()
	store, directory := memstore.New(), t.TempDir()
	s := open(t, keepsOpen{store}, server.Options{History: directory})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=3&weight=2&ttl=5m", "")
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 5}`)
	points := func(s *site, span string) []any {
		return s.want(200, "GET", "/v1/semaphores/db/history?range="+span, "").body["points"].([]any)
	}
	last := func(s *site) map[string]any {
		if all := points(s, "15m"); len(all) > 0 {
			return all[len(all)-1].(map[string]any)
		}
		return nil
	}
	waitFor(t, "a sample", func() bool { p := last(s); return p != nil && p["in_use"] == 2.0 && p["effective_capacity"] == 5.0 })
	before := len(points(s, "15m"))
	_ = s.Close(t.Context())
	again := open(t, keepsOpen{store}, server.Options{History: directory})
	if n := len(points(again, "1h")); n < before {
		t.Errorf("%d points after the restart, %d before", n, before)
	}
	events := fmt.Sprint(again.want(200, "GET", "/v1/semaphores/db/history?range=24h", "").body["events"])
	for _, want := range []string{"resize", `"capacity":5`, "anonymous", "restart"} {
		if !strings.Contains(events, want) {
			t.Errorf("no %s in %s", want, events)
		}
	}
	for _, bad := range []string{"range=1s", "range=25h", "range=x", "since=1h"} {
		again.want(400, "GET", "/v1/semaphores/db/history?"+bad, "")
	}
	again.want(404, "GET", "/v1/semaphores/none/history", "")
	again.want(200, "GET", "/v1/semaphores/db/history", "")
}

// TestHistory_DirectoryOfAnotherServer checks that a second server with the same directory serves,
// changes nothing there, and reports what to do.
func TestHistory_DirectoryOfAnotherServer(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	first := open(t, memstore.New(), server.Options{History: directory})
	second := open(t, memstore.New(), server.Options{History: directory})
	second.want(201, "POST", "/v1/semaphores/db/leases?capacity=3", "")
	second.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 5}`)
	for where, text := range map[string]string{"log": second.log.String(), "dashboard": second.tab().get(200, "/ui/store").text} {
		if !strings.Contains(text, directory) || !strings.Contains(text, "stop that server, or set another directory") {
			t.Errorf("%s: %s", where, text)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := open(t, memstore.New(), server.Options{History: directory})
	third.want(201, "POST", "/v1/semaphores/db/leases?capacity=3", "")
	if events := third.want(200, "GET", "/v1/semaphores/db/history", "").text; strings.Contains(events, "resize") {
		t.Errorf("the second server has written to the directory: %s", events)
	}
}
