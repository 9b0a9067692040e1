package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema/x/server"
)

func TestConfigure_CreatesChangesAndDeletes(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	made := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3, "max_waiters": 7}`)
	if made.body["capacity"] != 3.0 || made.body["max_waiters"] != 7.0 {
		t.Errorf("%v", made.body)
	}
	tag := header{"If-Match", made.header.Get("ETag")}
	changed := s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 5, "ramp": 1}`, tag)
	if changed.body["capacity"] != 5.0 || changed.body["ramp"] != 1.0 || changed.body["max_waiters"] != 7.0 || changed.header.Get("ETag") == tag.value {
		t.Errorf("%v %v", changed.header, changed.body)
	}
	s.want(412, "PUT", "/v1/semaphores/db", `{"capacity": 6}`, tag)
	s.want(412, "PUT", "/v1/semaphores/none", `{"capacity": 6}`, tag)
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 6}`)
	shown := s.want(200, "GET", "/v1/semaphores/db", "")
	if shown.header.Get("RateLimit-Policy") == "" || !strings.HasPrefix(shown.header.Get("RateLimit"), `"db";r=`) {
		t.Errorf("%v", shown.header)
	}
	list := s.want(200, "GET", "/v1/semaphores?prefix=d", "")
	if len(list.body["semaphores"].([]any)) != 1 {
		t.Errorf("%v", list.body)
	}
	if empty := s.want(200, "GET", "/v1/semaphores?prefix=x", ""); !strings.Contains(empty.text, `"semaphores":[]`) {
		t.Error(empty.text)
	}
	s.want(204, "DELETE", "/v1/semaphores/db", "")
	s.want(404, "DELETE", "/v1/semaphores/db", "")
	for _, text := range []string{"op=configure", "op=delete", "who=anonymous", `capacity\":5`} {
		if !strings.Contains(s.log.String(), text) {
			t.Errorf("the log has no %q:\n%s", text, s.log)
		}
	}
}

func TestDrain_LastsUntilResume(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	at := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2", "").header.Get("Location")
	if a := s.want(200, "POST", "/v1/semaphores/db/drain", ""); a.body["draining"] != true {
		t.Errorf("%v", a.body)
	}
	if rejected := s.want(503, "POST", "/v1/semaphores/db/leases", ""); rejected.header.Get("Retry-After") == "" || rejected.body["type"] != "/problems/draining" {
		t.Errorf("%v %v", rejected.header, rejected.body)
	}
	s.want(200, "PUT", at, "") // renewals still succeed
	s.want(204, "DELETE", at, "")
	s.want(200, "POST", "/v1/semaphores/db/resume", "")
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
}

func TestRevoke_EndsALease(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	a := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	at := a.header.Get("Location")
	s.want(400, "POST", a.revoke(), `{"why": "`+strings.Repeat("it hangs ", 200)+`"}`)
	s.want(204, "POST", a.revoke(), `{"why": "it hangs"}`)
	if gone := s.want(410, "PUT", at, ""); !strings.Contains(gone.text, "it hangs") {
		t.Errorf("no reason in %s", gone.text)
	}
	waitFor(t, "the permit is free", func() bool { return s.send("POST", "/v1/semaphores/db/leases", "").status == 201 })
	s.want(404, "POST", a.revoke(), "")
	s.want(400, "POST", "/v1/semaphores/db/leases/x/revoke", "")
}

func TestDeclaration_ConfiguresSemaphores(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "tenant-*", Capacity: 2}, {Name: "*", Capacity: 7}}})
	for _, name := range []string{"tenant-a", "other"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=100", "")
	}
	if got := s.want(200, "GET", "/v1/semaphores/tenant-a", "").body["capacity"]; got != 2.0 {
		t.Errorf("capacity %v, want the declared one", got)
	}
	if got := s.want(200, "GET", "/v1/semaphores/other", "").body["capacity"]; got != 7.0 {
		t.Errorf("capacity %v, want that of the last pattern", got)
	}
	for _, bad := range []server.Declaration{{Name: "[", Capacity: 1}, {Capacity: 1}, {Name: "x", Capacity: -1}, {Name: "x", Capacity: 1, MaxWaiters: new(int64(-1))}} {
		if _, err := server.New(nil, server.Options{Declared: []server.Declaration{bad}}); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestWatch_StreamsChanges(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(404, "GET", "/v1/semaphores/db/watch", "")
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1}`)
	for _, kind := range []string{"application/x-ndjson", "text/event-stream"} {
		ctx, cancel := context.WithCancel(t.Context())
		request, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/semaphores/db/watch", nil)
		request.Header.Set("Accept", kind)
		client := &http.Client{Transport: &http.Transport{}}
		response, err := client.Do(request)
		if err != nil || response.Header.Get("Content-Type") != kind {
			t.Fatal(response, err)
		}
		lines := bufio.NewScanner(response.Body)
		next := func() (seen struct {
			InUse int `json:"in_use"`
		}) {
			for lines.Scan() {
				if text := strings.TrimPrefix(lines.Text(), "data: "); text != "" {
					if err := json.Unmarshal([]byte(text), &seen); err != nil {
						t.Fatal(err, text)
					}
					return seen
				}
			}
			t.Fatal("the stream has ended")
			return seen
		}
		if first := next(); first.InUse != 0 {
			t.Errorf("%+v", first)
		}
		at := s.want(201, "POST", "/v1/semaphores/db/leases", "").header.Get("Location")
		if second := next(); second.InUse != 1 {
			t.Errorf("%+v", second)
		}
		s.want(204, "DELETE", at, "")
		cancel()
		response.Body.Close()
		client.CloseIdleConnections()
	}
}

// TestOpenAPI_DescribesAllRoutes checks that the description and the routes are the same.
func TestOpenAPI_DescribesAllRoutes(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	routes, documented := s.Routes(), []string(nil)
	for path, methods := range describes.Paths {
		for method := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if !slices.Equal(routes, documented) {
		t.Errorf("routes %v\ndescribed %v", routes, documented)
	}
	s.want(200, "GET", "/openapi.json", "")
	s.want(404, "GET", "/v2/nothing", "")
}
