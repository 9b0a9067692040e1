package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sema-go/sema/x/server"
)

// TestPlayground_IsServedWithoutAToken checks the policy: the page may compile its program,
// and pages of the dashboard may not.
func TestPlayground_IsServedWithoutAToken(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	for path, want := range map[string]string{"/play/": "Sema playground", "/play/play.js": "worker", "/play": "Sema playground"} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("GET %s: %d %v, want %q", path, r.StatusCode, err, want)
		}
		policy := r.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self' 'wasm-unsafe-eval';") || strings.Contains(policy, "unsafe-inline") {
			t.Errorf("GET %s: policy %q", path, policy)
		}
	}
	if r, err := http.Post(s.url+"/play/", "text/plain", strings.NewReader("x")); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", r, err)
	} else {
		_ = r.Body.Close()
	}
	if r, err := http.Get(start(t, server.Options{}).url + "/ui/"); err != nil {
		t.Error(err)
	} else {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || !strings.Contains(string(body), `href="/play/"`) || strings.Contains(r.Header.Get("Content-Security-Policy"), "wasm") {
			t.Errorf("the dashboard has no link, or allows programs: %v", err)
		}
	}
}
