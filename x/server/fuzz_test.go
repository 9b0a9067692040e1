package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/x/server"
)

// FuzzAPI sends arbitrary requests: the server responds as described, never with an internal
// error, and serves the next request.
func FuzzAPI(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST", "/v1/semaphores/db/leases?capacity=1&wait=1ms", ""},
		{"POST", "/v1/semaphores/db/leases", `{"weight": 2, "wait": "5ms", "holder": "x"}`},
		{"PUT", "/v1/semaphores/db", `{"capacity": 3, "ramp": 1}`},
		{"PUT", "/v1/semaphores/db/leases/1.2", ""},
		{"POST", "/v1/batch", `{"requests": [{"op": "acquire", "semaphore": "db"}]}`},
		{"POST", "/v1/semaphores/db/leases/1/revoke", `{"why": "x", "at_once": true}`},
		{"GET", "/v1/semaphores?prefix=%00", ""},
		{"DELETE", "/v1/semaphores/%2F..%2F", ""},
		{"PUT", "/v1/semaphores/db", `{"capacity": 1e99, "ttl": "x", "draining": 1}`},
		{"POST", "/v1/semaphores/db/leases?weight=x&wait=y;z", ""},
		{"PATCH", "/v1/semaphores/db", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	s := start(f, server.Options{Limits: server.Limits{MaxWait: 10 * time.Millisecond}})
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.Contains(path, "watch") || strings.Contains(strings.ToLower(path+body), "hold") {
			t.Skip("the request would not end")
		}
		request, err := http.NewRequest(method, s.url+"/"+strings.TrimPrefix(path, "/"), strings.NewReader(body))
		if err != nil {
			t.Skip("the request cannot be sent")
		}
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, request)
		if recorder.Code >= 500 && recorder.Code != http.StatusServiceUnavailable && recorder.Code != http.StatusNotImplemented {
			t.Errorf("%s %s %s: %d %s", method, path, body, recorder.Code, recorder.Body)
		}
		if strings.Contains(recorder.Header().Get("Content-Type"), "problem") {
			var p struct{ Type, Title, Detail string }
			if err := json.Unmarshal(recorder.Body.Bytes(), &p); err != nil || p.Type == "" || p.Title == "" {
				t.Errorf("%s %s %s: %s", method, path, body, recorder.Body)
			}
			if !strings.Contains(path+body, internals.FindString(p.Detail)) { // it may repeat parts of the request
				wantPlain(t, p.Detail)
			}
		}
		after := httptest.NewRecorder()
		s.ServeHTTP(after, httptest.NewRequest("GET", "/livez", nil))
		if after.Code != http.StatusOK {
			t.Errorf("after %s %s: %d", method, path, after.Code)
		}
	})
}
