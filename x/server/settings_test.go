package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

func TestConfigure_CreatesPaused(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "declared", Capacity: 5, TTL: time.Minute}}})
	for _, name := range []string{"db", "declared"} {
		made := s.want(201, "PUT", "/v1/semaphores/"+name, `{"capacity": 0, "ramp": 2, "max_waiters": 3, "draining": true}`)
		if made.body["capacity"] != 0.0 || made.body["ramp"] != 2.0 || made.body["max_waiters"] != 3.0 || made.body["draining"] != true {
			t.Errorf("%v", made.body)
		}
		s.want(503, "POST", "/v1/semaphores/"+name+"/leases", "")
	}
}

func TestConfigure_TTLIsFixed(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "declared", Capacity: 5, TTL: time.Minute}}})
	made := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3, "ttl": "20s"}`)
	if made.body["ttl"] != 20.0 {
		t.Errorf("%v", made.body)
	}
	fixed := s.want(409, "PUT", "/v1/semaphores/db", `{"capacity": 4, "ttl": "30s"}`)
	if detail := fmt.Sprint(fixed.body["detail"]); !strings.Contains(detail, "20s") || !strings.Contains(detail, "30s") || !strings.Contains(detail, "delete") || fixed.body["type"] != "/problems/setting-fixed" {
		t.Errorf("%v", fixed.body)
	}
	same := s.want(200, "PUT", "/v1/semaphores/db", `{"capacity": 3, "ttl": 20}`)
	if same.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("ETag %s, was %s: nothing has changed", same.header.Get("ETag"), made.header.Get("ETag"))
	}
	s.want(409, "PUT", "/v1/semaphores/declared", `{"ttl": "30s"}`)
	if declared := s.want(200, "GET", "/v1/semaphores/declared", ""); declared.body["version"] != 0.0 || declared.body["ttl"] != 60.0 {
		t.Errorf("%v: a rejected change created it", declared.body)
	}
	s.want(400, "PUT", "/v1/semaphores/other", `{"capacity": 4, "ttl": "0s"}`)
	s.want(400, "PUT", "/v1/semaphores/other", `{"capacity": 4, "ttl": "1ms"}`)
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	for _, settings := range []*semav1.Settings{{TtlMs: new(uint32(30_000))}, {WindowMs: new(uint32(1000))}} {
		_, err := client.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "db", Settings: settings})
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%v: %v", settings, err)
		}
	}
}

// TestConfigure_NothingToChange checks that a request that changes nothing keeps the ETag.
func TestConfigure_NothingToChange(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	tag := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 3, "ramp": 1}`).header.Get("ETag")
	for _, c := range [][3]string{
		{"PUT", "", `{}`}, {"PUT", "", `{"capacity": 3}`}, {"PUT", "", `{"ramp": 1, "draining": false}`}, {"PUT", "", `{"capacity": null}`}, {"POST", "/resume", ""},
	} {
		if now := s.want(200, c[0], "/v1/semaphores/db"+c[1], c[2]).header.Get("ETag"); now != tag {
			t.Errorf("%v: ETag %s, was %s", c, now, tag)
		}
	}
	drained := s.want(200, "POST", "/v1/semaphores/db/drain", "").header.Get("ETag")
	if again := s.want(200, "POST", "/v1/semaphores/db/drain", "").header.Get("ETag"); again != drained || drained == tag {
		t.Errorf("ETag %s, then %s, then %s", tag, drained, again)
	}
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	if _, err := client.Drain(t.Context(), &semav1.DrainRequest{Semaphore: "db"}); err != nil {
		t.Error(err)
	}
	same, err := client.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "db", Settings: &semav1.Settings{}})
	if err != nil || fmt.Sprintf("%q", fmt.Sprint(same.Semaphore.Version)) != drained {
		t.Errorf("%v %v, want version %s", same, err, drained)
	}
}

// TestConfigure_RPCSettings checks that the settings of an RPC configure a new semaphore.
func TestConfigure_RPCSettings(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	settings := &semav1.Settings{Capacity: new(int64(4)), Ramp: new(int64(1)), MaxWaiters: new(int64(7)), WindowMs: new(uint32(60_000)), TtlMs: new(uint32(20_000))}
	if _, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "acquired", Settings: settings}); err != nil {
		t.Error(err)
	}
	if _, err := client.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "configured", Settings: settings}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"acquired", "configured"} {
		a := s.want(200, "GET", "/v1/semaphores/"+name, "")
		if a.body["kind"] != "rate" || a.body["window"] != 60.0 || a.body["ramp"] != 1.0 || a.body["max_waiters"] != 7.0 || a.body["ttl"] != 20.0 {
			t.Errorf("%v", a.body)
		}
	}
}

// TestDeclaration_MaxWaiters checks that, as in requests, 0 is no waiters and absent is no bound.
func TestDeclaration_MaxWaiters(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{
		{Name: "none", Capacity: 1, MaxWaiters: new(int64)}, {Name: "seven", Capacity: 1, MaxWaiters: new(int64(7))}, {Name: "any", Capacity: 1},
	}})
	for name, want := range map[string]any{"none": 0.0, "seven": 7.0, "any": nil} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases", "")
		if got := s.want(200, "GET", "/v1/semaphores/"+name, "").body["max_waiters"]; got != want {
			t.Errorf("%s: max_waiters %v, want %v", name, got, want)
		}
	}
}

func TestRate_HeadersHaveTheWindow(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{
		{Name: "hourly", Capacity: 1, Window: time.Hour}, {Name: "some", Capacity: 10, Window: 10 * time.Minute}, {Name: "fast", Capacity: 2, Window: 200 * time.Millisecond, TTL: time.Minute}, {Name: "plain", Capacity: 1},
	}})
	for _, c := range []struct {
		name, weight, policy, spent string
		retry                       int
	}{
		{"hourly", "1", `"hourly";q=1;w=3600`, `"hourly";r=0;t=`, 3600},
		{"some", "10", `"some";q=10;w=600`, `"some";r=0;t=`, 600},
		{"plain", "1", `"plain";q=1`, `"plain";r=0`, 1},
	} {
		path := "/v1/semaphores/" + c.name + "/leases?weight=" + c.weight
		granted, full := s.want(201, "POST", path, ""), s.want(429, "POST", path, "")
		timeout := s.want(429, "POST", path+"&wait=10ms", "")
		shown := s.want(200, "GET", "/v1/semaphores/"+c.name, "")
		for _, a := range []jsonReply{granted, full, timeout, shown} {
			if a.header.Get("RateLimit-Policy") != c.policy || !strings.HasPrefix(a.header.Get("RateLimit"), c.spent) {
				t.Errorf("%s: %d %v", c.name, a.status, a.header)
			}
		}
		full.wantRetry(t, c.retry-1, c.retry, "full")
		timeout.wantRetry(t, c.retry-1, c.retry, "timeout")
	}
	if a := s.want(201, "POST", "/v1/semaphores/fast/leases", ""); a.header.Get("RateLimit-Policy") != `"fast";q=2;w=1` {
		t.Errorf("%v", a.header)
	}
}

func TestJSON_EmptyArrays(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for _, want := range []string{`"holders":[]`, `"waiters":[]`} {
		if a := s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1}`); !strings.Contains(a.text, want) {
			t.Errorf("%s has no %s", a.text, want)
		}
		s.want(204, "DELETE", "/v1/semaphores/db", "")
	}
	a := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	if !strings.Contains(a.text, `"revoked":[]`) {
		t.Errorf("%s has no revoked", a.text)
	}
	list := s.want(200, "GET", "/v1/semaphores", "")
	if strings.Contains(list.text, "holders") { // a list has no holders, not even an empty array
		t.Error(list.text)
	}
}

// TestJSON_EmptyValuesOverConnect checks that Connect's JSON includes values that are false, 0 or
// empty: a reader need not know which fields exist.
func TestJSON_EmptyValuesOverConnect(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "").body["id"]
	for _, c := range []struct {
		procedure, body string
		wants           []string
	}{
		{semav1connect.SemaServiceListProcedure, `{"prefix": "none"}`, []string{`"semaphores":[]`, `"next":""`}},
		{semav1connect.SemaServiceReleaseProcedure, fmt.Sprintf(`{"semaphore": "db", "id": %q}`, lease), []string{`{}`}},
		{semav1connect.SemaServiceReleaseProcedure, fmt.Sprintf(`{"semaphore": "db", "id": %q}`, lease), []string{`{}`}},
		{semav1connect.SemaServiceConfigureProcedure, `{"semaphore": "db", "settings": {"capacity": 0}}`, []string{`"capacity":"0"`, `"draining":false`}},
		{semav1connect.SemaServiceInfoProcedure, `{"semaphore": "db"}`, []string{`"holders":[]`, `"waiters":[]`, `"inUse":"0"`}},
		{semav1connect.SemaServiceDrainProcedure, `{"semaphore": "db"}`, []string{`"inUse":"0"`}},
	} {
		_, text := s.exchange("POST", fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.procedure, len(c.body), c.body))
		for _, want := range c.wants {
			if !strings.Contains(strings.ReplaceAll(text, " ", ""), want) {
				t.Errorf("%s: %s has no %s", c.procedure, text, want)
			}
		}
	}
}
