package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// fields converts a message to the JSON API's form: with its names, durations in seconds, and
// instants as text.
func fields(t *testing.T, m proto.Message) map[string]any {
	t.Helper()
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return inJSON(all).(map[string]any)
}

func inJSON(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = inJSON(v[i])
		}
	case map[string]any:
		for key, one := range maps.Clone(v) {
			delete(v, key)
			one = inJSON(one)
			if text, ok := one.(string); ok && slices.Contains(wholeNumbers, key) {
				one, _ = json.Number(text).Float64()
			}
			switch {
			case strings.HasSuffix(key, "_ms"):
				key, one = strings.TrimSuffix(key, "_ms"), one.(float64)/1000
			case strings.HasSuffix(key, "_us"):
				key, one = strings.TrimSuffix(key, "_us"), time.UnixMicro(int64(one.(float64))).UTC().Format(time.RFC3339Nano)
			case key == "kind":
				one = strings.ToLower(strings.TrimPrefix(one.(string), "KIND_"))
			case key == "revoked" && reflect.TypeOf(one).Kind() == reflect.Slice:
				for i, r := range one.([]any) {
					one.([]any)[i] = []any{r.(map[string]any)["from"], r.(map[string]any)["to"]}
				}
			}
			if list, ok := one.([]any); one == "" && key == "next" || one == 0.0 && key == "window" || ok && len(list) == 0 && key == "slots" {
				continue // JSON omits them
			}
			v[key] = one
		}
	}
	return value
}

// wholeNumbers lists the 64-bit fields, which protojson writes as strings.
var wholeNumbers = []string{
	"lease", "weight", "capacity", "effective_capacity", "in_use", "waiting", "ramp", "max_waiters", "version", "seq", "floor", "from", "to", "since_us", "renewed_us", "process",
}

// same fails unless two replies have the same fields with the same values.
func same(t *testing.T, what string, overJSON, overRPC map[string]any, except ...string) {
	t.Helper()
	if have, want := slices.Sorted(maps.Keys(overRPC)), slices.Sorted(maps.Keys(overJSON)); !slices.Equal(have, want) {
		t.Errorf("%s: RPC has the fields\n%v, JSON\n%v", what, have, want)
	}
	for key, value := range overJSON {
		if !slices.Contains(except, key) && !reflect.DeepEqual(value, overRPC[key]) {
			t.Errorf("%s: %s is\n%v over JSON, and\n%v over RPC", what, key, value, overRPC[key])
		}
	}
}

// withoutAges replaces measured times, which pass from one request to the next, by the names of
// their fields.
func withoutAges(value any) {
	switch v := value.(type) {
	case []any:
		for i := range v {
			withoutAges(v[i])
		}
	case map[string]any:
		for key, one := range v {
			if times, ok := one.(map[string]any); ok && key == "times" {
				v[key] = slices.Sorted(maps.Keys(times))
				continue
			}
			withoutAges(one)
		}
	}
}

// TestAgreement_OfReplies checks that JSON and RPC have the same fields for the same state, in
// the units of each.
func TestAgreement_OfReplies(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{
		Tokens:   []server.Token{{Name: "ops", Hash: server.HashToken("secret"), Verbs: server.Verbs()}},
		Declared: []server.Declaration{{Name: "mails", Capacity: 7, Window: time.Minute}},
	})
	s.auth = "secret"
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer("secret")))
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 2, "ttl": "40s", "ramp": 3, "max_waiters": 5}`)
	first := s.want(201, "POST", "/v1/semaphores/db/leases?holder=a+job", "")
	s.want(201, "POST", "/v1/semaphores/db/leases?holder=another", "")
	s.want(204, "POST", first.revoke(), `{"why": "enough"}`)
	s.want(201, "POST", "/v1/semaphores/mails/leases?weight=2", "")
	s.want(201, "PUT", "/v1/semaphores/drained", `{"capacity": 1, "draining": true}`)
	s.want(201, "PUT", "/v1/semaphores/gpu", `{"capacity": 8, "numbered": true}`)
	s.want(201, "POST", "/v1/semaphores/gpu/leases?weight=3", "")
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range 2 {
		wg.Go(func() { s.want(429, "POST", fmt.Sprintf("/v1/semaphores/db/leases?wait=5s&holder=w%d", i), "") })
	}
	waitFor(t, "two wait", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == 2.0 })

	for _, name := range []string{"db", "mails", "drained", "gpu"} {
		for _, p := range []struct{ query, after string }{{"", ""}, {"?limit=1", ""}, {"?limit=3&after=h1", "h1"}} {
			// A heartbeat may arrive in between: compare the two only if nothing has changed.
			for {
				shown := s.want(200, "GET", "/v1/semaphores/"+name+p.query, "")
				limit := uint32(0)
				fmt.Sscanf(p.query, "?limit=%d", &limit)
				m, err := c.Info(t.Context(), &semav1.InfoRequest{Semaphore: name, Limit: limit, After: p.after})
				if err != nil {
					t.Fatal(err)
				}
				again := s.want(200, "GET", "/v1/semaphores/"+name+p.query, "")
				withoutAges(shown.body)
				if withoutAges(again.body); !reflect.DeepEqual(shown.body, again.body) {
					continue
				}
				all := fields(t, m)
				semaphore := all["semaphore"].(map[string]any)
				delete(all, "semaphore")
				maps.Copy(all, semaphore)
				withoutAges(all)
				same(t, "info of "+name+p.query, shown.body, all)
				break
			}
		}
	}
	list := s.want(200, "GET", "/v1/semaphores?limit=2", "")
	m, err := c.List(t.Context(), &semav1.ListRequest{Limit: 2})
	if err != nil || m.Next != "drained" {
		t.Fatal(m, err)
	}
	overRPC := fields(t, m)
	withoutAges(list.body)
	withoutAges(overRPC)
	same(t, "list", list.body, overRPC)
}

// TestAgreement_OfLeases checks that a lease has the same fields, also in a batch.
func TestAgreement_OfLeases(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	leased := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "", header{"Idempotency-Key", "k"})
	a, err := c.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db", IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "acquire", leased.body, fields(t, a.Lease), "valid_for")
	renewed := s.want(200, "PUT", "/v1/semaphores/db/leases/"+a.Lease.Id, "")
	same(t, "renew", renewed.body, fields(t, a.Lease), "valid_for")
	numbered := s.want(201, "POST", "/v1/semaphores/gpu/leases?capacity=4&numbered=true&weight=2", "", header{"Idempotency-Key", "k"})
	g, err := c.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "gpu", Weight: 2, IdempotencyKey: "k"})
	if err != nil || numbered.body["slots"] == nil {
		t.Fatal(numbered.body, err)
	}
	same(t, "acquire of numbered permits", numbered.body, fields(t, g.Lease), "valid_for")

	texts := s.want(200, "POST", "/v1/batch", fmt.Sprintf(`{"requests": [
		{"op": "acquire", "semaphore": "db", "idempotency_key": "k"}, {"op": "acquire", "semaphore": "db"}, {"op": "renew", "semaphore": "db", "id": %q},
		{"op": "release", "semaphore": "db", "id": %q}, {"op": "acquire", "semaphore": "db", "wait": "1ms"}]}`, a.Lease.Id, gone)).body["results"].([]any)
	b, err := c.Batch(t.Context(), &semav1.BatchRequest{Requests: []*semav1.BatchItem{
		{Request: &semav1.BatchItem_Acquire{Acquire: &semav1.AcquireRequest{Semaphore: "db", IdempotencyKey: "k"}}},
		{Request: &semav1.BatchItem_Acquire{Acquire: &semav1.AcquireRequest{Semaphore: "db"}}},
		{Request: &semav1.BatchItem_Renew{Renew: &semav1.RenewRequest{Semaphore: "db", Id: a.Lease.Id}}},
		{Request: &semav1.BatchItem_Release{Release: &semav1.ReleaseRequest{Semaphore: "db", Id: gone}}},
		{Request: &semav1.BatchItem_Acquire{Acquire: &semav1.AcquireRequest{Semaphore: "db", WaitMs: 1}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]connect.Code{"/problems/full": connect.CodeResourceExhausted, "/problems/lease-lost": connect.CodeFailedPrecondition, "/problems/timeout": connect.CodeDeadlineExceeded}
	for i, result := range b.Results {
		text := texts[i].(map[string]any)
		if lease := result.GetLease(); lease != nil {
			same(t, fmt.Sprint("result ", i), text["lease"].(map[string]any), fields(t, lease), "valid_for")
			continue
		}
		problem, failure := text["problem"].(map[string]any), result.GetFailure()
		retry, _ := problem["retry_after"].(float64)
		detail := problem["detail"].(string)
		if code := codes[problem["type"].(string)]; code == 0 || failure.GetCode() != code.String() || (failure.GetRetryAfterMs() > 0) != (retry > 0) || failure.GetRetryAfterMs()%1000 != 0 { // both have jitter
			t.Errorf("result %d is %v over JSON, and %v over RPC", i, problem, failure)
		}
		if before, _, _ := strings.Cut(detail, "too long"); !strings.HasPrefix(failure.GetMessage(), before) { // followed by how long it took
			t.Errorf("result %d: %q over JSON, and %q over RPC", i, detail, failure.GetMessage())
		}
	}
}

// TestAgreement_OfMaxWaiters checks over JSON and RPC that an absent value is no bound, 0 is
// no waiters, and null (or clear) removes a bound.
func TestAgreement_OfMaxWaiters(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	shown := func() (overJSON any, overRPC *int64) {
		m, err := c.Info(t.Context(), &semav1.InfoRequest{Semaphore: "db"})
		if err != nil {
			t.Fatal(err)
		}
		return s.want(200, "GET", "/v1/semaphores/db", "").body["max_waiters"], m.Semaphore.MaxWaiters
	}
	s.want(201, "PUT", "/v1/semaphores/db", `{"capacity": 1}`)
	steps := []struct {
		body     string
		settings *semav1.Settings
		want     any
	}{
		{`{}`, &semav1.Settings{}, nil},
		{`{"max_waiters": 4}`, &semav1.Settings{MaxWaiters: new(int64(4))}, 4.0},
		{`{"ramp": 2}`, &semav1.Settings{Ramp: new(int64(2))}, 4.0},
		{`{"max_waiters": 0}`, &semav1.Settings{MaxWaiters: new(int64(0))}, 0.0},
		{`{"ramp": 3}`, &semav1.Settings{Ramp: new(int64(3))}, 0.0},
		{`{"max_waiters": null}`, &semav1.Settings{ClearMaxWaiters: true}, nil},
	}
	for _, step := range steps {
		for _, change := range []func(){
			func() { s.want(200, "PUT", "/v1/semaphores/db", step.body) },
			func() {
				if _, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "db", Settings: step.settings}); err != nil {
					t.Fatal(err)
				}
			},
		} {
			change()
			overJSON, overRPC := shown()
			if overJSON != step.want || (overRPC == nil) != (step.want == nil) || overRPC != nil && float64(*overRPC) != step.want {
				t.Errorf("%s: %v over JSON, %v over RPC, want %v", step.body, overJSON, overRPC, step.want)
			}
		}
	}
	s.want(201, "POST", "/v1/semaphores/strict/leases?capacity=1&max_waiters=0", "")
	if a := s.want(429, "POST", "/v1/semaphores/strict/leases?wait=30s", ""); a.body["type"] != "/problems/queue-full" {
		t.Errorf("%v", a.body)
	}
	s.want(400, "PUT", "/v1/semaphores/db", `{"max_waiters": -1}`)
	if _, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "db", Settings: &semav1.Settings{MaxWaiters: new(int64(-1))}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v", err)
	}
}

// TestAgreement_OfPreconditions checks that preconditions work over RPC as over JSON.
func TestAgreement_OfPreconditions(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	made, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "db", Create: true, Settings: &semav1.Settings{Capacity: new(int64(1))}})
	if err != nil || !made.Created {
		t.Fatal(made, err)
	}
	other := made.Semaphore.Version + 1
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"create": func() error {
			_, err := c.Configure(ctx, &semav1.ConfigureRequest{Semaphore: "db", Create: true})
			return err
		},
		"drain": func() error {
			_, err := c.Drain(ctx, &semav1.DrainRequest{Semaphore: "db", Version: other})
			return err
		},
		"resume": func() error {
			_, err := c.Resume(ctx, &semav1.ResumeRequest{Semaphore: "db", Version: other})
			return err
		},
		"delete": func() error {
			_, err := c.Delete(ctx, &semav1.DeleteRequest{Semaphore: "db", Version: other})
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeAborted {
			t.Errorf("%s: %v", what, err)
		}
	}
	lease := s.want(201, "POST", "/v1/semaphores/db/leases", "")
	if a := s.want(200, "POST", "/v1/semaphores/db/drain?wait=10ms", ""); a.body["in_use"] != 1.0 || a.body["draining"] != true {
		t.Errorf("%v", a.body)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if a := s.want(200, "POST", "/v1/semaphores/db/drain?wait=1m", ""); a.body["in_use"] != 0.0 {
			t.Errorf("%v", a.body)
		}
	})
	s.want(204, "DELETE", lease.header.Get("Location"), "")
	wg.Wait()
}

// TestOpenAPI_OperationIDs checks that every operation has a unique id.
func TestOpenAPI_OperationIDs(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	ids := map[string]string{}
	for _, route := range s.Routes() {
		method, path, _ := strings.Cut(route, " ")
		id := describes.Paths[path][strings.ToLower(method)].OperationID
		if id == "" || ids[id] != "" {
			t.Errorf("%s has the operationId %q, as has %q", route, id, ids[id])
		}
		ids[id] = route
	}
	// RPC has the same operations.
	verbs := semav1.File_sema_v1_sema_proto.Services().ByName("SemaService").Methods()
	for i := range verbs.Len() {
		verb := strings.ToLower(string(verbs.Get(i).Name()))
		if verb != "hold" && ids[verb] == "" { // hold is acquire with hold=connection
			t.Errorf("only RPC has %s", verb)
		}
	}
}
