package server_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
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
	ops.get(200, "/ui/store").contains(t, "replied in", "Every semaphore has metrics", "History", "Memory store of", "Persistence", "In the memory of this process", "Use another store", "No clients wait for each other")
	if p := reader.get(200, "/ui/store"); strings.Contains(p.text, "Persistence") || strings.Contains(p.text, "Memory store") || strings.Contains(p.text, "Deadlocks") {
		t.Errorf("a viewer with a prefix sees the setup of the store: %s", p.text)
	}
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
	group := form("do", "revoke-group", "by", "client", "group", "127.0.0.1")
	if p := reader.get(200, "/ui/semaphore?name=ci-a"); strings.Contains(p.text, "do=revoke") || !strings.Contains(p.text, "In use by client") {
		t.Errorf("a viewer that may not change anything sees a way to revoke, or not the holders: %s", p.text)
	}
	reader.get(403, "/ui/confirm?name=ci-a&"+group.Encode())
	reader.get(404, "/ui/confirm?name=vault&"+group.Encode())
	reader.get(404, "/ui/semaphore?name=vault")
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

// TestClients_ListEachSemaphoreOnce checks that the leases of the HTTP API, which have a session each, are added up.
func TestClients_ListEachSemaphoreOnce(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for range 3 {
		s.want(201, "POST", "/v1/semaphores/db/leases?capacity=9&ttl=60s&weight=2", "")
	}
	p := s.tab().get(200, "/ui/clients")
	p.contains(t, "holds 6 permits in 3 leases", "1 client.")
	if n := strings.Count(p.text, `?name=db"`); n != 1 {
		t.Errorf("db is listed %d times: %s", n, p.text)
	}
}

// A deafStore does not respond to pings once it is deaf.
type deafStore struct {
	*memstore.Store
	deaf atomic.Bool
}

func (d *deafStore) Ping(ctx context.Context) (time.Time, error) {
	if d.deaf.Load() {
		return time.Time{}, errors.New("connection refused")
	}
	return d.Store.Ping(ctx)
}

// TestPages_StoreThatDoesNotRespond checks that nothing is called good that was not checked, and that only
// viewers without a prefix see the cause.
func TestPages_StoreThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	store := &deafStore{Store: memstore.New()}
	s := open(t, store, watchers())
	ops, reader := s.tab(), s.tab()
	ops.login("secret-ops")
	reader.login("secret-reader")
	ops.get(200, "/ui/store").contains(t, "The store replied in", "Persistence", "Deadlocks")
	store.deaf.Store(true)
	var p page
	waitFor(t, "the page shows the outage", func() bool {
		p = ops.get(200, "/ui/store")
		return strings.Contains(p.text, "The store does not respond")
	})
	p.contains(t, "Cause: connection refused.", "Memory store", "Every semaphore has metrics")
	for _, unchecked := range []string{"Persistence", "Deadlocks", "Clock"} {
		if strings.Contains(p.text, unchecked) {
			t.Errorf("%s was not checked: %s", unchecked, p.text)
		}
	}
	if p := reader.get(200, "/ui/store"); !strings.Contains(p.text, "does not respond") || strings.Contains(p.text, "refused") {
		t.Errorf("a viewer with a prefix: %s", p.text)
	}
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

// TestPages_ListManyClients checks that the list of clients has pages, also with a filter.
func TestPages_ListManyClients(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	config := protocol.Config{Protocol: protocol.Version, Capacity: 1000, TTL: 3_600_000_000}
	for i := range 450 {
		name, by := fmt.Sprintf("crowd-%d", i%3), protocol.Opener{Client: protocol.Client{Instance: fmt.Sprintf("client-%04d", i)}}
		session, _, err := store.Open(t.Context(), name, config, by)
		if err != nil {
			t.Fatal(err)
		}
		batch := protocol.Batch{Session: session, Seq: 1, Ops: []protocol.Op{{Verb: protocol.Acquire, Ticket: 1, Weight: 1}}}
		if _, err := store.Apply(t.Context(), name, batch); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, store, server.Options{})
	b := s.tab()
	for path, want := range map[string][]string{
		"/ui/clients":                     {"450 clients. Next", "client-0000", "client-0199"},
		"/ui/clients?from=400":            {"450 clients.", "client-0400", "client-0449"},
		"/ui/clients?q=crowd-1":           {"150 clients.", "client-0001", "client-0448"},
		"/ui/clients?from=9000&q=crowd-1": {"150 clients.", "client-0001"},
	} {
		p := b.get(200, path)
		p.contains(t, want[1:]...)
		text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(p.text, "")), " ")
		if !strings.Contains(text, want[0]) || strings.Contains(p.text, "client-0200") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// TestPages_AreAccessible checks pages outside of the daily path with axe: the login, also after a
// failure, the form and the questions as pages, and errors.
func TestPages_AreAccessible(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	s.auth = "secret-ops"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2&ttl=60s", "")
	w := s.window()
	w.do("size", chromedp.EmulateViewport(390, 844))
	w.open("/ui/")
	w.accessible()
	w.picture("login")
	w.do("log in", chromedp.SendKeys(chromedp.CSS("#token"), "wrong\n"))
	w.shows(".result", "Unknown token")
	w.accessible()
	w.do("log in", chromedp.SendKeys(chromedp.CSS("#token"), "secret-ops\n"))
	w.shows("#live", "live")
	for path, text := range map[string]string{
		"/ui/": "db", "/ui/semaphore?name=db": "Holders", "/ui/new": "New semaphore", "/ui/confirm?do=drain&name=db": "Drain", "/ui/confirm?do=delete&name=db": "Delete",
		"/ui/nowhere": "No such page", "/ui/semaphore?name=none": "No such semaphore", "/ui/?q=none": "No name contains", "/ui/activity": "restart", "/ui/clients": "db", "/ui/store": "replied",
	} {
		w.open(path)
		w.shows("main", text)
		w.sees("document.documentElement.scrollWidth <= innerWidth") // no sideways scrolling on a phone
		w.accessible()
	}
}
