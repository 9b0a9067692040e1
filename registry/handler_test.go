package registry_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
)

// get sends a request, and returns the response with its body.
func get(r *registry.Registry, method, target string, accept ...string) (*httptest.ResponseRecorder, string) {
	req := httptest.NewRequest(method, target, nil)
	for _, a := range accept {
		req.Header.Set("Accept", a)
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w, w.Body.String()
}

func decode(t *testing.T, body string) (v struct {
	Total  int
	Next   string
	Limits []map[string]any
	File   map[string]any
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

func TestHandler_JSONHasAllFields(t *testing.T) {
	t.Parallel()
	r := registry.New()
	db := r.Semaphore("TestHandler_JSON", 4, "the reason", sema.Diagnose(sema.DiagnoseFull))
	permit, _ := db.Acquire(t.Context(), 3)
	defer permit.Release()
	q := wfq.New(9)
	q.Set("paid", wfq.Share{Weight: 3, Min: 1, Max: 2, Tier: 4})
	r.Add("queue", q, "why")
	r.Add("rate", rate.New(5, time.Minute), "why")
	mustLoad(t, r, `{"limits": {"TestHandler_JSON": {"capacity": 2, "why": "less"}}}`)
	_ = load(t, r, `{"limits": {"nope": {}}}`)

	w, body := get(r, "GET", "/debug/sema?format=json")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, header %v", w.Code, w.Header())
	}
	v := decode(t, body)
	first := v.Limits[0]
	for key, want := range map[string]any{
		"name": "TestHandler_JSON", "why": "the reason", "kind": "sema.Semaphore", "shared": false, "configured": true, "configured_why": "less",
		"paused": false, "capacity": 2.0, "in_use": 3.0, "free": 0.0, "debt": 1.0, "waiters": 0.0, "draining": false, "closed": false,
		"acquired": 1.0, "waited": 0.0, "timed_out": 0.0, "cancelled": 0.0, "rejected": 0.0, "wait_seconds": 0.0, "classes_total": 0.0,
	} {
		if first[key] != want {
			t.Errorf("%s is %v, want %v", key, first[key], want)
		}
	}
	if fmt.Sprint(first["value"], first["initial"]) != "map[capacity:2] map[capacity:4]" || !strings.HasPrefix(first["site"].(string), "registry/handler_test.go:") {
		t.Errorf("%v", first)
	}
	holder := first["holders"].([]any)[0].(map[string]any)
	if holder["weight"] != 3.0 || !strings.HasPrefix(holder["site"].(string), "registry/handler_test.go:") || holder["age_seconds"].(float64) < 0 {
		t.Errorf("holder %v", holder)
	}
	class := v.Limits[1]["classes"].([]any)[0].(map[string]any)
	if class["name"] != "paid" || class["weight"] != 3.0 || class["min"] != 1.0 || class["max"] != 2.0 || class["tier"] != 4.0 || class["queued_seconds"] != 0.0 || v.Limits[1]["classes_total"] != 1.0 {
		t.Errorf("class %v", class)
	}
	if fmt.Sprint(v.Limits[2]["value"]) != "map[capacity:5 window_seconds:60]" {
		t.Errorf("rate %v", v.Limits[2])
	}
	if v.Total != 3 || v.Next != "" || v.File["path"] == nil || v.File["loaded_at"] == nil || v.File["rejected_since"] == nil || !strings.Contains(v.File["error"].(string), "nope") {
		t.Errorf("%s", body)
	}
	if _, body := get(r, "GET", "/", "application/json"); decode(t, body).Total != 3 {
		t.Errorf("Accept was ignored: %s", body)
	}
	if w, _ := get(r, "GET", "/?format=html", "application/json"); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("format was ignored: %v", w.Header())
	}
}

// wellFormed fails the test unless the page is well-formed, with all elements closed.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, page)
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are not closed", depth)
	}
}

func TestHandler_PageShowsWhatMatters(t *testing.T) {
	t.Parallel()
	r := registry.New()
	r.Semaphore("db", 4, "PostgreSQL accepts 50 connections")
	r.Semaphore("batch", 4, "why")
	r.Semaphore("all", sema.MaxCapacity, "why")
	r.Add("mail", rate.New(5, time.Minute), "why")
	mustLoad(t, r, `{"limits": {"db": {"capacity": 0, "why": "incident 7"}, "batch": {"capacity": 8}}}`)
	_ = load(t, r, `{"limits": {"nope": {"capacity": -1}}}`)
	w, body := get(r, "GET", "/debug/sema", "text/html,application/xhtml+xml,*/*")
	policy := w.Header().Get("Content-Security-Policy")
	if w.Code != 200 || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "style-src 'sha256-") {
		t.Errorf("status %d, header %v", w.Code, w.Header())
	}
	for _, part := range []string{
		"PostgreSQL accepts 50 connections", "paused", "incident 7", "(program: 4)", "8 by the file", "5 per 1m0s", "unlimited",
		"sema.Semaphore", "registry/handler_test.go:", "was rejected", "no such limit", "was loaded at", `<meter min="0" max="8" value="0"`, "4 of 4 limits",
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the page does not contain %q:\n%s", part, body)
		}
	}
	for _, part := range []string{"ZgotmplZ", "<script", "http://", "https://", "style="} {
		if strings.Contains(body, part) {
			t.Errorf("the page contains %q", part)
		}
	}
	wellFormed(t, body)
}

func TestHandler_EscapesAllTexts(t *testing.T) {
	t.Parallel()
	const attack = `"><script>alert(1)</script>`
	r := registry.New()
	q := wfq.New(1)
	q.Set(attack, wfq.Share{})
	r.Add(attack, q, attack)
	text, _ := json.Marshal(attack)
	mustLoad(t, r, fmt.Sprintf(`{"limits": {%s: {"why": %s}}}`, text, text))
	_ = load(t, r, fmt.Sprintf(`{"limits": {"x": {%s: 1}}}`, text))
	w, body := get(r, "GET", "/?name=%22%3E%3Cscript")
	if w.Code != 200 || strings.Contains(body, "<script") || strings.Count(body, "&lt;script&gt;alert(1)") < 5 {
		t.Errorf("status %d:\n%s", w.Code, body)
	}
	wellFormed(t, body)
}

func TestHandler_IsReadOnly(t *testing.T) {
	t.Parallel()
	r := registry.New()
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if w, _ := get(r, method, "/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
	if w, body := get(r, "HEAD", "/"); w.Code != 200 {
		t.Errorf("HEAD: status %d, %s", w.Code, body)
	}
	for _, query := range []string{"format=xml", "limit=0", "limit=1001", "limit=x"} {
		if w, body := get(r, "GET", "/?"+query); w.Code != 400 || !strings.Contains(body, "want") {
			t.Errorf("%s: status %d, %s", query, w.Code, body)
		}
	}
	if _, body := get(r, "GET", "/"); !strings.Contains(body, "none") {
		t.Errorf("an empty page:\n%s", body)
	}
	if _, body := get(r, "GET", "/?format=json"); !strings.Contains(body, `"limits": []`) || strings.Contains(body, `"file"`) {
		t.Errorf("an empty list: %s", body)
	}
}

func TestHandler_PagesAreBounded(t *testing.T) {
	t.Parallel()
	r := registry.New()
	for i := range 10_000 {
		r.Semaphore(fmt.Sprintf("tenant/%05d", i), 1, "why")
	}
	r.Semaphore("db", 1, "why")
	_, body := get(r, "GET", "/?name=tenant/")
	if n := strings.Count(body, `<th scope="row">`); n != 200 || !strings.Contains(body, "200 of 10000 limits") || !strings.Contains(body, "after=tenant%2F00199") {
		t.Errorf("%d rows, %d bytes", n, len(body))
	}
	seen, after := 0, ""
	for pages := 0; pages < 20; pages++ {
		_, body := get(r, "GET", "/?format=json&limit=1000&after="+after)
		v := decode(t, body)
		for _, l := range v.Limits {
			if name := l["name"].(string); name <= after {
				t.Fatalf("%q after %q", name, after)
			}
		}
		seen += len(v.Limits)
		if after = v.Next; after == "" {
			break
		}
	}
	if seen != 10_001 {
		t.Errorf("%d limits on all pages", seen)
	}
	q := wfq.New(1)
	for i := range 60 {
		q.Set(fmt.Sprint(i), wfq.Share{})
	}
	r.Add("queue", q, "why")
	_, body = get(r, "GET", "/?format=json&name=queue")
	l := decode(t, body).Limits[0]
	if len(l["classes"].([]any)) != 50 || l["classes_total"] != 60.0 {
		t.Errorf("%v", l)
	}
}
