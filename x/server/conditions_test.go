package server_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema/x/server"
)

// changes lists the requests that change a configuration. Each supports If-Match.
var changes = []struct {
	method, path, body string
	status             int
	absent             int // status if the semaphore does not exist
}{
	{"PUT", "", `{"capacity": 9}`, 200, 412}, // it would create the semaphore
	{"POST", "/drain", "", 200, 404},
	{"POST", "/resume", "", 200, 404},
	{"DELETE", "", "", 204, 404},
}

func TestPreconditions_IfMatchFails(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.method+c.path, func(t *testing.T) {
			t.Parallel()
			s := start(t, server.Options{})
			tag := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`).header.Get("ETag")
			if c.path == "/resume" {
				tag = s.want(200, "POST", "/v1/semaphores/db/drain", "").header.Get("ETag")
			}
			for _, other := range []string{`"4711"`, `"4711", "4712"`, "W/" + tag, `"a, ` + tag[1:], `""`} {
				a := s.want(412, c.method, "/v1/semaphores/db"+c.path, c.body, header{"If-Match", other})
				if a.body["type"] != "/problems/precondition-failed" {
					t.Errorf("If-Match: %s: %v", other, a.body)
				}
			}
			for _, malformed := range []string{tag[1 : len(tag)-1], `"a" "b"`, `"a`, `*, "a"`, "w/" + tag} {
				s.want(400, c.method, "/v1/semaphores/db"+c.path, c.body, header{"If-Match", malformed})
			}
			if now := s.want(200, "GET", "/v1/semaphores/db", "").header.Get("ETag"); now != tag {
				t.Errorf("ETag %s, was %s: a rejected request changed something", now, tag)
			}
			s.want(c.absent, c.method, "/v1/semaphores/none"+c.path, c.body, header{"If-Match", "*"})
			s.want(404, "GET", "/v1/semaphores/none", "")
		})
	}
}

func TestPreconditions_IfMatchHolds(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		for _, format := range []string{"%s", `"4711", %s`, `%s , W/"x"`, ",%s,", "*"} {
			s := start(t, server.Options{})
			tag := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`).header.Get("ETag")
			value := format
			if format != "*" {
				value = fmt.Sprintf(format, tag)
			}
			s.want(c.status, c.method, "/v1/semaphores/db"+c.path, c.body, header{"If-Match", value})
		}
	}
}

func TestPreconditions_IfNoneMatch(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	create := header{"If-None-Match", "*"}
	tag := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`, create).header.Get("ETag")
	s.want(412, "PUT", "/v1/semaphores/db", `{"capacity": 9}`, create)
	s.want(412, "PUT", "/v1/semaphores/db", `{"capacity": 9}`, header{"If-None-Match", `"x", W/` + tag})
	for _, path := range []string{"/drain", "/resume"} {
		s.want(412, "POST", "/v1/semaphores/db"+path, "", create)
	}
	s.want(412, "DELETE", "/v1/semaphores/db", "", create)
	shown := s.want(200, "GET", "/v1/semaphores/db", "")
	if shown.body["capacity"] != 3.0 || shown.header.Get("ETag") != tag {
		t.Errorf("%v %v: want the state after its creation", shown.header, shown.body)
	}
	s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 9}`, header{"If-None-Match", `"x"`})
	// The tag identifies the configuration: the state of a semaphore in use changes all the time.
	s.want(200, "GET", "/v1/semaphores/db", "", header{"If-None-Match", s.want(200, "GET", "/v1/semaphores/db", "").header.Get("ETag")})
}

// TestPreconditions_OfOtherRequests checks that a precondition is rejected if it would be
// ignored.
func TestPreconditions_OfOtherRequests(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=3", "")
	fence := lease.body["lease"].(float64)
	for _, name := range []string{"If-Match", "If-None-Match"} {
		for _, request := range [][3]string{
			{"POST", "/v1/semaphores/db/leases", ""},
			{"POST", "/v1/semaphores/new/leases?capacity=1", ""},
			{"PUT", lease.header.Get("Location"), ""},
			{"DELETE", lease.header.Get("Location"), ""},
			{"POST", fmt.Sprintf("/v1/semaphores/db/leases/%.0f/revoke", fence), ""},
			{"POST", "/v1/batch", `{"requests": [{"op": "acquire", "semaphore": "db"}]}`},
		} {
			a := s.want(400, request[0], request[1], request[2], header{name, `"4711"`})
			if !strings.Contains(a.text, name) {
				t.Errorf("%v: %s", request, a.text)
			}
		}
		s.want(200, "GET", "/v1/semaphores/db", "", header{name, `"4711"`})
	}
	if shown := s.want(200, "GET", "/v1/semaphores/db", ""); shown.body["in_use"] != 1.0 {
		t.Errorf("a rejected request changed something: %s", shown.text)
	}
	s.want(404, "GET", "/v1/semaphores/new", "")
}

// TestPreconditions_OneWriterWins checks that one of many writers that have read the same version
// changes it.
func TestPreconditions_OneWriterWins(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	tag := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3}`).header.Get("ETag")
	var changed atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			a := s.send("PUT", "/v1/semaphores/db", `{"capacity": `+strconv.Itoa(10+i)+`}`, header{"If-Match", tag})
			switch a.status {
			case 200:
				changed.Add(1)
			case 412:
			default:
				t.Errorf("%d %s", a.status, a.text)
			}
		})
	}
	wg.Wait()
	if changed.Load() != 1 {
		t.Errorf("%d writers changed the same version", changed.Load())
	}
}
