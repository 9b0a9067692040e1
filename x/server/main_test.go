package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a server that listens, with its log.
type site struct {
	*server.Server
	t    testing.TB
	http *httptest.Server
	url  string
	log  *logBuffer
	auth string // token of requests; "": none

	program string // the binary, of a site that is a process
}

// open starts a server over a store. Both are closed when the test ends.
func open(t testing.TB, store fleet.Store, o server.Options) *site {
	t.Helper()
	log := &logBuffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	o.Version = "test"
	s, err := server.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewUnstartedServer(s)
	listening.Config.Protocols = &http.Protocols{}
	listening.Config.Protocols.SetHTTP1(true)
	listening.Config.Protocols.SetUnencryptedHTTP2(true)
	listening.Start()
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		listening.Close()
	})
	return &site{Server: s, t: t, http: listening, url: listening.URL, log: log}
}

// A logBuffer collects a log while requests write to it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t testing.TB, o server.Options) *site {
	t.Helper()
	return open(t, memstore.New(), o)
}

// A jsonReply is a response that was checked against the OpenAPI description.
type jsonReply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// wantRetry checks Retry-After, which is from least to most and up to a quarter and a second
// more, and X-Shed-Reason.
func (a jsonReply) wantRetry(t *testing.T, least, most int, reason string) {
	t.Helper()
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || after < max(1, least) || after > most+most/4+1 || a.body["retry_after"] != float64(after) {
		t.Errorf("Retry-After %q, want from %d to %d with jitter: %s", a.header.Get("Retry-After"), least, most, a.text)
	}
	if got := a.header.Get("X-Shed-Reason"); got != reason {
		t.Errorf("X-Shed-Reason %q, want %q: %s", got, reason, a.text)
	}
}

// A header is one header field.
type header struct{ key, value string }

// send sends a request, and fails unless the response is as described in openapi.json.
func (s *site) send(method, path, body string, headers ...header) jsonReply {
	s.t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.auth != "" {
		request.Header.Set("Authorization", "Bearer "+s.auth)
	}
	for _, h := range headers {
		request.Header.Set(h.key, h.value)
	}
	response, err := s.http.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := jsonReply{status: response.StatusCode, header: response.Header, text: string(raw)}
	if strings.Contains(a.header.Get("Content-Type"), "json") && len(raw) > 0 {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			s.t.Fatalf("%s %s: %s: %v", method, path, raw, err)
		}
	}
	if strings.Contains(a.header.Get("Content-Type"), "problem") || strings.Contains(a.text, `"problem":`) {
		wantPlain(s.t, a.text)
	}
	if err := described(method, path, a, raw); err != nil {
		s.t.Errorf("%s %s: %d %s\nis not as described: %v", method, path, a.status, raw, err)
	}
	return a
}

// want sends a request with send, and fails unless the response has a status.
func (s *site) want(status int, method, path, body string, headers ...header) jsonReply {
	s.t.Helper()
	a := s.send(method, path, body, headers...)
	if a.status != status {
		s.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, a.text)
	}
	return a
}

// gone is the id of a lease that does not exist.
const gone = "1.2.00000000000000000000000000000000"

// revoke returns the path that revokes a lease by its number, not by its id.
func (a jsonReply) revoke() string {
	return fmt.Sprintf("/v1/semaphores/%s/leases/%.0f/revoke", a.body["semaphore"], a.body["lease"])
}

// lease returns the id of the lease in a response.
func (a jsonReply) lease() string { return fmt.Sprint(a.body["id"]) }

// A parameter is a parameter of openapi.json, or a reference to one.
type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
}

// describes maps paths and methods of openapi.json to operations.
var describes = func() (doc struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []parameter
		Responses   map[string]struct {
			Ref     string `json:"$ref"`
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Parameters map[string]parameter }
}) {
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		panic(err)
	}
	return doc
}()

// described fails unless a response is one of those in the description.
func described(method, path string, a jsonReply, raw []byte) error {
	path, _, _ = strings.Cut(path, "?")
	template := templateOf(path)
	response, ok := describes.Paths[template][strings.ToLower(method)].Responses[fmt.Sprint(a.status)]
	if !ok {
		if a.status == http.StatusNotFound && describes.Paths[template] == nil {
			return nil // no such path
		}
		if _, there := describes.Paths[template][strings.ToLower(method)]; !there && a.header.Get("Allow") != "" {
			return nil // no such method; the Allow header lists the methods
		}
		return fmt.Errorf("no status %d for %s %s", a.status, method, template)
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	at := "#/paths/" + pointer(template) + "/" + strings.ToLower(method) + "/responses/" + fmt.Sprint(a.status) + "/content/" + pointer(kind) + "/schema"
	if name, shared := strings.CutPrefix(response.Ref, "#/components/responses/"); shared {
		at = "#/components/responses/" + name + "/content/" + pointer("application/problem+json") + "/schema"
		if kind != "application/problem+json" {
			return fmt.Errorf("content type %q", kind)
		}
	} else if len(response.Content) == 0 {
		if len(raw) > 0 {
			return fmt.Errorf("unexpected body")
		}
		return nil
	} else if _, ok := response.Content[kind]; !ok {
		return fmt.Errorf("content type %q", kind)
	}
	if !strings.HasSuffix(kind, "json") || kind == "application/x-ndjson" {
		return nil
	}
	schema, err := compiler().Compile("file:///openapi.json" + at)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func compiler() *jsonschema.Compiler {
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("file:///openapi.json", doc); err != nil {
		panic(err)
	}
	return c
}

// pointer encodes a key of a JSON pointer that is part of a URL.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
}

// templateOf returns the template of a path in the description.
func templateOf(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		if i == 3 && parts[2] == "semaphores" && parts[i] != "" {
			parts[i] = "{name}"
		}
		if i == 2 && parts[1] == "problems" {
			parts[i] = "{problem}"
		}
		if i == 5 && parts[4] == "leases" {
			parts[i] = "{id}"
			if len(parts) == 7 {
				parts[i] = "{lease}"
			}
		}
	}
	return strings.Join(parts, "/")
}

func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}
