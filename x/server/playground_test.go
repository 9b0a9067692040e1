package server_test

import (
	"fmt"
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

func TestDocuments_AreServedWithoutAToken(t *testing.T) {
	t.Parallel()
	o := watchers()
	without := start(t, o)
	o.Documents = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	for s, want := range map[*site]string{start(t, o): "200 page /cli.html", without: "404 "} {
		r, err := http.Get(s.url + "/docs/cli.html")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if got := fmt.Sprint(r.StatusCode, " ", string(body)); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		for _, page := range []string{"/", "/ui/"} { // link to the documents if there are any
			r, err := http.Get(s.url + page)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if linked := strings.Contains(string(body), "/docs/"); err != nil || linked != (s != without) {
				t.Errorf("%s links to the documents: %v, %v", page, linked, err)
			}
		}
	}
}
