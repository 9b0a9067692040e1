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

// A site is a server that listens, and what it has logged.
type site struct {
	*server.Server
	t    testing.TB
	http *httptest.Server
	url  string
	log  *logBuffer
	auth string // the token that is sent
}

// open starts a server over a store, which is closed with it.
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

// A logBuffer is a log that requests write while a test reads it.
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

// An answer is what a server has said, after it was compared with the description.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// A header is a line of one.
type header struct{ key, value string }

// ask sends a request, and fails unless the answer is as openapi.json says.
func (s *site) ask(method, path, body string, headers ...header) answer {
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
	a := answer{status: response.StatusCode, header: response.Header, text: string(raw)}
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

// want is ask for an answer of which the status is known.
func (s *site) want(status int, method, path, body string, headers ...header) answer {
	s.t.Helper()
	a := s.ask(method, path, body, headers...)
	if a.status != status {
		s.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, a.text)
	}
	return a
}

// gone is the id of a lease that does not exist.
const gone = "1.2.00000000000000000000000000000000"

// revoke returns where a lease is revoked: by its number, and not by its id.
func (a answer) revoke() string {
	return fmt.Sprintf("/v1/semaphores/%s/leases/%.0f/revoke", a.body["semaphore"], a.body["lease"])
}

// lease returns the id of the lease in an answer.
func (a answer) lease() string { return fmt.Sprint(a.body["id"]) }

// A parameter is one of openapi.json, or the name of one.
type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
}

// describes is openapi.json, by path and method.
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

// described fails unless an answer is one of those that the description has.
func described(method, path string, a answer, raw []byte) error {
	path, _, _ = strings.Cut(path, "?")
	template := templateOf(path)
	response, ok := describes.Paths[template][strings.ToLower(method)].Responses[fmt.Sprint(a.status)]
	if !ok {
		if a.status == http.StatusNotFound && describes.Paths[template] == nil {
			return nil // there is no such thing
		}
		if _, there := describes.Paths[template][strings.ToLower(method)]; !there && a.header.Get("Allow") != "" {
			return nil // there is no such method, and it says which there are
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
			return fmt.Errorf("there should be no body")
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

// pointer is a key in a JSON pointer that is part of a URL.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
}

// templateOf is the path as the description has it.
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
			t.Fatalf("it never came to be that %s", what)
		}
	}
}
