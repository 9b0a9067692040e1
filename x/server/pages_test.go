package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/server"
)

// TestPages_ShowOnlyWhatTheViewerMaySee checks activity, clients and the store for viewers with and
// without a prefix, and that texts of clients are escaped.
func TestPages_ShowOnlyWhatTheViewerMaySee(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	s.auth = "secret-ops"
	for _, name := range []string{"vault", "ci-a", "%3Cscript%3E"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=2&ttl=60s", "")
		s.want(200, "POST", "/v1/semaphores/"+name+"/drain", "")
	}
	ops, reader := s.tab(), s.tab()
	ops.login("secret-ops")
	reader.login("secret-reader")
	ops.get(200, "/ui/activity").contains(t, "vault", "ci-a", "drain", "ops", "restart", "<script>")
	ops.get(200, "/ui/clients").contains(t, "vault", "ci-a", "service", "holds 1 permit", "<script>")
	ops.get(200, "/ui/store").contains(t, "replied in", "Every semaphore has metrics", "History")
	ops.get(200, "/ui/activity?kind=drain&q=vault").contains(t, "1 event.")
	for _, path := range []string{"/ui/activity", "/ui/clients", "/ui/store", "/ui/activity?q=vault", "/ui/clients?q=vault"} {
		if p := reader.get(200, path); strings.Contains(strings.Split(p.text, "<main")[1], `?name=vault`) || strings.Contains(p.text, "semaphores have") {
			t.Errorf("%s: %s", path, p.text)
		}
		if p := ops.get(200, path); strings.Contains(p.text, "<script>") {
			t.Errorf("%s is not escaped", path)
		}
	}
	reader.get(200, "/ui/activity").contains(t, "ci-a")
	reader.get(200, "/ui/clients").contains(t, "ci-a")
	reader.get(403, "/ui/new").contains(t, "You may view but not change")
	reader.post(403, "/ui/create", form("name", "ci-new", "capacity", "3"))
	s.want(404, "GET", "/v1/semaphores/ci-new", "")
	if p := reader.get(200, "/ui/"); strings.Contains(p.text, "/ui/new") {
		t.Error("a viewer that may not change anything sees the form")
	}
	ops.post(303, "/ui/create", form("name", "made", "capacity", "3", "max_waiters", "0", "ttl", "20s"))
	if made := s.want(200, "GET", "/v1/semaphores/made", ""); made.body["capacity"] != 3.0 || made.body["max_waiters"] != 0.0 {
		t.Error(made.text)
	}
	ops.post(412, "/ui/create", form("name", "made", "capacity", "3")).contains(t, `A semaphore "made" exists already.`)
	ops.post(400, "/ui/create", form("name", "other", "capacity", "none")).contains(t, "whole number of permits")
	ops.post(403, "/ui/create", form("name", "other", "capacity", "3"), header{"Sec-Fetch-Site", "cross-site"})
	s.want(404, "GET", "/v1/semaphores/other", "")
}

// TestPages_InABrowser checks the pages in a browser, and that axe finds nothing.
func TestPages_InABrowser(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=60s&holder=first", "")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.send("POST", "/v1/semaphores/db/leases?wait=20s", "") })
	s.want(201, "PUT", "/v1/semaphores/mail", `{"capacity": 5}`)
	s.want(200, "POST", "/v1/semaphores/mail/drain", "")
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1280, 900))
	for name, text := range map[string]string{"activity": "drain", "clients": "holds 1 permit", "store": "The store replied in"} {
		w.open("/ui/" + name)
		w.shows("main", text)
		w.sees("document.querySelector('.places [aria-current]').textContent.toLowerCase() === '" + name + "'")
		w.accessible()
		w.picture(name)
	}
	w.quiet()
}

// TestActivity_NamesWhatGoClientsChange checks that what a Go client does by storing a configuration is
// listed as the operation that it is.
func TestActivity_NamesWhatGoClientsChange(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	client := fleet.New(s.store(""))
	defer client.Close(t.Context())
	gate, err := client.Semaphore("db", 8)
	if err != nil {
		t.Fatal(err)
	}
	permit, err := gate.Acquire(t.Context(), 1) // creates the semaphore
	if err != nil {
		t.Fatal(err)
	}
	permit.Release()
	for _, do := range []func(context.Context) error{gate.Drain, gate.Resume, func(ctx context.Context) error { return gate.Resize(ctx, 10) }} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b := s.tab()
	for kind, detail := range map[string]string{"drain": "", "resume": "", "resize": "capacity 8 → 10"} {
		b.get(200, "/ui/activity?kind="+kind).contains(t, "1 event.", detail)
	}
	b.get(200, "/ui/activity?kind=configure").contains(t, "Nothing has been changed")
}
