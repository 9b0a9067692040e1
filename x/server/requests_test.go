package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// exchange sends raw bytes, and reads one response.
func (s *site) exchange(method, request string) (*http.Response, string) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.http.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		s.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("%.80q: %v", request, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%.80q: %v", request, err)
	}
	return response, string(body)
}

func TestRequests_QueryIsRead(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`)
	lease := s.want(201, "POST", "/v1/semaphores/db/leases", "").header.Get("Location")
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/v1/semaphores/db/leases?weight=3;holder=a", ";"},
		{"POST", "/v1/semaphores/db/leases?weight=3&holder=%zz", "%zz"},
		{"POST", "/v1/semaphores/db/leases?weight=1&weight=2", "weight"},
		{"POST", "/v1/semaphores/db/leases?wieght=2", "wieght"},
		{"POST", "/v1/semaphores/db/leases?Weight=2", "Weight"},
		{"POST", "/v1/semaphores/db/leases?weight=", "weight"},
		{"GET", "/v1/semaphores?prefix=a&prefix=b", "prefix"},
		{"GET", "/v1/semaphores?prefx=a", "prefx"},
		{"GET", "/v1/semaphores?prefix=a;b", ";"},
		{"GET", "/v1/semaphores/db?verbose=1", "verbose"},
		{"GET", "/v1/semaphores/db/watch?every=1s", "every"},
		{"PUT", "/v1/semaphores/db?capacity=4", "capacity"},
		{"POST", "/v1/semaphores/db/drain?waits=1s", "waits"},
		{"POST", "/v1/semaphores/db/resume?x", "x"},
		{"DELETE", "/v1/semaphores/db?force=1", "force"},
		{"PUT", lease + "?ttl=1m", "ttl"},
		{"DELETE", lease + "?now", "now"},
		{"POST", "/v1/semaphores/db/leases/1/revoke?why=stuck", "why"},
		{"POST", "/v1/batch?x=1", "x"},
	} {
		if a := s.want(400, c.method, c.path, ""); !strings.Contains(fmt.Sprint(a.body["detail"]), c.want) {
			t.Errorf("%s %s: %v does not name %q", c.method, c.path, a.body["detail"], c.want)
		}
	}
	if a := s.want(200, "GET", "/v1/semaphores/db", ""); a.body["in_use"] != 1.0 || a.body["draining"] != false {
		t.Errorf("%v: a rejected request had an effect", a.body)
	}
}

// TestRequests_QueryIsDescribed checks that the supported query parameters are those of the
// description.
func TestRequests_QueryIsDescribed(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for at, methods := range describes.Paths {
		for method, operation := range methods {
			var described []string
			for _, p := range operation.Parameters {
				if p.Ref != "" {
					p = describes.Components.Parameters[path.Base(p.Ref)]
				}
				if p.In == "query" {
					described = append(described, p.Name)
				}
			}
			read := s.Parameters(strings.ToUpper(method) + " " + at)
			slices.Sort(described)
			if strings.HasPrefix(at, "/v1/") && !slices.Equal(described, read) {
				t.Errorf("%s %s: %v are described, %v are read", method, at, described, read)
			}
		}
	}
}

func TestRequests_BrokenBody(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	const head = " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, path := range []string{"PUT /v1/semaphores/db", "POST /v1/semaphores/db/leases", "POST /v1/batch"} {
		for _, body := range []string{"zz\r\n{}\r\n0\r\n\r\n", "5\r\n{}\r\n0\r\n\r\n", "2\r\n{}xx0\r\n\r\n", "ffffffffffffffffff\r\n{}\r\n"} {
			response, text := s.exchange(strings.Fields(path)[0], path+head+body)
			if response.StatusCode != 400 || !strings.Contains(text, "/problems/invalid-request") {
				t.Errorf("%s %q: %s %s", path, body, response.Status, text)
			}
			wantPlain(t, text)
		}
	}
}

func TestRequests_SlowBody(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		response, text := s.exchange("PUT", "PUT /v1/semaphores/db HTTP/1.1\r\nHost: localhost\r\n"+length+"\r\n\r\n")
		if response.StatusCode != 408 || !strings.Contains(text, "/problems/slow-request") || !response.Close {
			t.Errorf("%s: %s %s, close %t", length, response.Status, text, response.Close)
		}
	}
}

func TestRequests_WrongMethod(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, c := range []struct{ method, path, allow string }{
		{"PATCH", "/v1/semaphores/db", "DELETE, GET, HEAD, OPTIONS, PUT"},
		{"POST", "/v1/semaphores", "GET, HEAD, OPTIONS"},
		{"GET", "/v1/semaphores/db/leases", "OPTIONS, POST"},
		{"GET", "/v1/semaphores/db/leases/1.2", "DELETE, OPTIONS, PUT"},
		{"GET", "/v1/semaphores/db/drain", "OPTIONS, POST"},
		{"GET", "/v1/batch", "OPTIONS, POST"},
		{"DELETE", "/v1/semaphores/a%2Fb/watch", "GET, HEAD, OPTIONS"},
		{"POST", "/livez", "GET, HEAD, OPTIONS"},
		{"DELETE", "/", "GET, HEAD, OPTIONS"},
		{"dance", "/v1/semaphores/db", "DELETE, GET, HEAD, OPTIONS, PUT"},
	} {
		if a := s.want(405, c.method, c.path, ""); a.header.Get("Allow") != c.allow || a.body["type"] != "/problems/method-not-allowed" {
			t.Errorf("%s %s: Allow %q, want %q; %v", c.method, c.path, a.header.Get("Allow"), c.allow, a.body)
		}
		if a := s.want(204, "OPTIONS", c.path, ""); a.header.Get("Allow") != c.allow {
			t.Errorf("OPTIONS %s: Allow %q, want %q", c.path, a.header.Get("Allow"), c.allow)
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/semaphores/", "/v1/semaphores/db/", "/v1/semaphores/db/dance", "/v1/semaphores/db/leases/1.2/", "/v1//db"} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			if a := s.want(404, method, path, ""); a.body["type"] != "/problems/no-such-path" {
				t.Errorf("%s %s: %v", method, path, a.body)
			}
		}
	}
}

func TestRequests_HEADEnds(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`)
	for _, path := range []string{"/v1/semaphores", "/v1/semaphores/db", "/v1/semaphores/db/watch", "/livez", "/readyz", "/openapi.json"} {
		response, text := s.exchange("HEAD", "HEAD "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if response.StatusCode != 200 || text != "" {
			t.Errorf("HEAD %s: %s %q", path, response.Status, text)
		}
	}
}

// TestRequests_BadBodyNamesTheWantedType checks that each error names the field and what is
// wanted, and no Go types or packages.
func TestRequests_BadBodyNamesTheWantedType(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`)
	const acquire, put, revoke, batch = "POST /v1/semaphores/db/leases", "PUT /v1/semaphores/db", "POST /v1/semaphores/db/leases/1/revoke", "POST /v1/batch"
	for _, c := range []struct{ at, body, want string }{
		{acquire, `{"weight": "x"}`, `weight: "x": want a whole number`},
		{acquire, `{"weight": "3"}`, `weight: "3": want a whole number`},
		{acquire, `{"weight": 1.5}`, `weight: 1.5: want a whole number`},
		{acquire, `{"weight": 1e30}`, `weight: 1e30: want a whole number`},
		{acquire, `{"weight": 99999999999999999999}`, `want a whole number`},
		{acquire, `{"weight": -1}`, `want a weight from 1`},
		{acquire, `{"weight": {}}`, `weight: {}: want a whole number`},
		{acquire, `{"wait": "soon"}`, `wait: "soon": want a duration such as "30s", or seconds`},
		{acquire, `{"wait": "NaN"}`, `wait: "NaN": want a duration`},
		{acquire, `{"wait": 1e300}`, `wait: 1e300: want a duration`},
		{acquire, `{"wait": "1e300"}`, `want a duration`},
		{acquire, `{"wait": true}`, `wait: true: want a duration`},
		{acquire, `{"wait": [1]}`, `want a duration`},
		{acquire, `{"ttl": "-1s"}`, `ttl`},
		{acquire, `{"holder": 7}`, `holder: 7: want a string`},
		{acquire, `{"hold": "forever"}`, `hold`},
		{acquire, `{"capacity": -1}`, `capacity`},
		{acquire, `{"weight": 1, "weight": 2}`, `"weight" is given twice`},
		{acquire, `{"WEIGHT": 2}`, `unknown field "WEIGHT"`},
		{acquire, `{"weigth": 2}`, `unknown field "weigth"`},
		{acquire, `[]`, "want a JSON object"},
		{acquire, `null`, "want a JSON object"},
		{acquire, `"x"`, "want a JSON object"},
		{acquire, `{"weight": 1} {}`, "after the JSON object"},
		{acquire, `{"weight": 1}x`, "after the JSON object"},
		{acquire, `{"weight": `, "not complete"},
		{acquire, `{"weight" 1}`, "not JSON"},
		{acquire, `weight=1`, "not JSON"},
		{acquire, "{\"holder\": \"\xff\"}", "UTF-8"},
		{put, ``, `{"capacity": 8}`},
		{put, ` `, `{"capacity": 8}`},
		{put, `{"capacity": "8"}`, `capacity: "8": want a whole number`},
		{put, `{"capacity": -1}`, `capacity`},
		{put, `{"capacity": 1e18}`, `capacity`},
		{put, `{"draining": "yes"}`, `draining: "yes": want true or false`},
		{put, `{"ramp": -1}`, `ramp`},
		{put, `{"max_waiters": -1}`, `max_waiters`},
		{put, `{"capacity": 4, "capacity": 5}`, `"capacity" is given twice`},
		{"POST /v1/semaphores/db/drain", `{"wait": "1s"}`, `unknown field "wait"`},
		{"POST /v1/semaphores/db/resume", `{"capacity": 1}`, `unknown field "capacity"`},
		{"PUT /v1/semaphores/db/leases/1.2", `{"ttl": "1m"}`, `unknown field "ttl"`},
		{revoke, `{"why": 1}`, `why: 1: want a string`},
		{revoke, `{"at_once": "yes"}`, `at_once: "yes": want true or false`},
		{batch, `{}`, "requests"},
		{batch, `{"requests": {}}`, "requests: {}: want an array"},
		{batch, `{"requests": [], "x": 1}`, `unknown field "x"`},
	} {
		method, path, _ := strings.Cut(c.at, " ")
		if a := s.want(400, method, path, c.body); !strings.Contains(fmt.Sprint(a.body["detail"]), c.want) {
			t.Errorf("%s %s: %v\nhas no %s", c.at, c.body, a.body["detail"], c.want)
		}
	}
	for _, step := range []string{`1`, `{"op": 1}`, `{"op": "acquire", "semaphore": "db", "weight": "x"}`, `{"op": "acquire", "op": "renew"}`, `{"op": "renew", "semaphore": "db", "id": 7}`, `{"op": "acquire"}`, `{"op": "renew", "id": "1.2"}`, `null`} {
		a := s.want(200, "POST", batch[5:], `{"requests": [`+step+`]}`)
		problem, _ := a.body["results"].([]any)[0].(map[string]any)["problem"].(map[string]any)
		if problem["status"] != 400.0 {
			t.Errorf("%s: %s", step, a.text)
		}
	}
	s.want(201, "POST", "/v1/semaphores/db/leases", `{"weight": 2.0, "wait": null, "holder": null}`)
	if a := s.want(200, "GET", "/v1/semaphores/db", ""); a.body["in_use"] != 2.0 || a.body["capacity"] != 3.0 {
		t.Errorf("%v", a.body)
	}
}

func TestRequests_IdempotencyKeyIsOne(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, lines := range []string{"Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "Idempotency-Key:\r\n"} {
		response, text := s.exchange("POST", "POST /v1/semaphores/db/leases?capacity=2 HTTP/1.1\r\nHost: localhost\r\n"+lines+"\r\n")
		if response.StatusCode != 400 || !strings.Contains(text, "Idempotency-Key") {
			t.Errorf("%q: %s %s", lines, response.Status, text)
		}
	}
}

// TestRequests_RPCBody checks that RPC over JSON has errors in the API's terms as well.
func TestRequests_RPCBody(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	const head = "POST /sema.v1.SemaService/Acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	chunked := func(body string) string { return "Transfer-Encoding: chunked\r\n\r\n" + body }
	sized := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }
	for _, c := range []struct {
		rest, want string
		status     int
		closes     bool
	}{
		{sized(`{"semaphore": "db", "weight": "x"}`), "weight", 400, false},
		{sized(`{"name": 1}`), "name", 400, false},
		{sized(`{"name": `), "not complete JSON", 400, false},
		{sized("{"), "not complete JSON", 400, false},
		{sized(`["db"]`), "(line 1:1): unexpected token [", 400, false},
		{sized(""), "JSON object", 400, false},
		{chunked("zz\r\n"), "malformed", 400, true},
		{"Content-Length: 50\r\n\r\n{", "not complete", 504, true},
	} {
		response, text := s.exchange("POST", head+c.rest)
		if response.StatusCode != c.status || !strings.Contains(text, c.want) || response.Close != c.closes {
			t.Errorf("%q: %s %s, close %t", c.rest, response.Status, text, response.Close)
		}
		if strings.Contains(text, "semav1") || strings.Contains(text, "proto:") || strings.Contains(text, "tcp") {
			t.Errorf("%q: %s", c.rest, text)
		}
	}
}

// TestRequests_BadQueryNamesTheWantedType checks that query errors have the same texts.
func TestRequests_BadQueryNamesTheWantedType(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for query, want := range map[string]string{
		"weight=x": `weight: "x": want a whole number`, "weight=1.5": "want a whole number", "weight=99999999999999999999": "want a whole number", "capacity=1e300": "want a whole number",
		"wait=soon": `wait: "soon": want a duration such as "30s", or seconds`, "wait=NaN": "want a duration", "wait=Inf": "want a duration", "wait=9e18": "want a duration", "ttl=x": "want a duration",
		"holder=%00": "holder", "holder=%FF": "UTF-8", "hold=x": "hold",
	} {
		if a := s.want(400, "POST", "/v1/semaphores/db/leases?"+query, ""); !strings.Contains(fmt.Sprint(a.body["detail"]), want) {
			t.Errorf("%s: %v\nhas no %s", query, a.body["detail"], want)
		}
	}
}

// TestRequests_RPCGarbage checks that malformed messages are rejected without Go types in the
// error, by both services and in both encodings.
func TestRequests_RPCGarbage(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, procedure := range []string{semav1connect.SemaServiceAcquireProcedure, semav1connect.StoreServiceOpenProcedure} {
		for kind, bodies := range map[string][]string{
			"application/json":                {"{", "garbage", "[]", `{"name": [1]}`},
			"application/json; charset=utf-8": {`{"name": {}}`},
			"application/proto":               {"garbage", "\x0a\xff", "\x0a\x02\xff\xff"},
		} {
			for _, body := range bodies {
				_, text := s.exchange("POST", fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", procedure, kind, len(body), body))
				if !strings.Contains(text, "invalid_argument") || strings.HasSuffix(text, `(line"}`) {
					t.Errorf("%s %s %q: %s", procedure, kind, body, text)
				}
				for _, internal := range []string{"semav1", "proto:", "*"} {
					if strings.Contains(text, internal) {
						t.Errorf("%s %s %q: %s\ncontains %q", procedure, kind, body, text, internal)
					}
				}
			}
		}
	}
}

// TestRequests_DELETEHasNoBody checks that a body is read or rejected: a client that means it as a
// condition must not lose a semaphore.
func TestRequests_DELETEHasNoBody(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=3", "").header.Get("Location")
	for _, path := range []string{lease, "/v1/semaphores/db"} {
		for _, body := range []string{`{"version": 1}`, "null", "x"} {
			s.want(400, "DELETE", path, body)
		}
		s.want(200, "GET", "/v1/semaphores/db", "")
		s.want(204, "DELETE", path, "{}")
	}
}
