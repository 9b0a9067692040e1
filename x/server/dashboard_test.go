package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
)

func TestDashboard_RedirectsBrowsers(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	p := s.tab().get(302, "/", header{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"})
	if p.header.Get("Location") != "/ui/" {
		t.Errorf("%v", p.header)
	}
	if a := s.want(200, "GET", "/", ""); !strings.Contains(a.text, "curl -X POST") {
		t.Error(a.text)
	}
}

// TestDashboard_EmptyShowsACommand checks that an empty overview shows a command that works.
func TestDashboard_EmptyShowsACommand(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	b := s.tab()
	p := b.get(200, "/ui/")
	p.contains(t, "No semaphores yet")
	line := regexp.MustCompile(`curl -X POST '(http.*)'`).FindStringSubmatch(html.UnescapeString(p.text))
	if line == nil || !strings.HasPrefix(line[1], s.url) {
		t.Fatalf("%v in %s", line, p.text)
	}
	s.want(201, "POST", strings.TrimPrefix(line[1], s.url), "")
	waitFor(t, "the semaphore appears", func() bool { // a page may be a second old
		return strings.Contains(b.get(200, "/ui/").text, "<b>1</b> of 3")
	})
	b.get(200, "/ui/?q=DEM").contains(t, "demo")
	b.get(200, "/ui/?q=x").contains(t, "No name contains “x”")
	b.get(404, "/ui/semaphore?name=none").contains(t, "No such semaphore")
	b.get(404, "/ui/nothing").contains(t, "No such page")
}

// TestDashboard_ContentSecurityPolicy checks that pages use only resources of this server, and
// have no inline code.
func TestDashboard_ContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&holder=me", "")
	b := s.tab()
	for _, path := range []string{"/ui/", "/ui/semaphore?name=db", "/ui/confirm?do=delete&name=db", "/ui/nothing"} {
		p := b.send("GET", path, nil)
		policy := p.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: policy %q", path, policy)
			}
		}
		for key, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
			if p.header.Get(key) != value {
				t.Errorf("%s: %s is %q", path, key, p.header.Get(key))
			}
		}
		if bad := regexp.MustCompile(`(?i)<script>|<style| style=|\son[a-z]+=|https?://`).FindString(p.text); bad != "" {
			t.Errorf("%s has %q", path, bad)
		}
		for _, found := range regexp.MustCompile(`(?:src|href)="(/ui/assets/[^"]+)"`).FindAllStringSubmatch(p.text, -1) {
			if a := b.get(200, found[1]); !strings.Contains(a.header.Get("Cache-Control"), "immutable") || len(a.text) == 0 {
				t.Errorf("%s: %v", found[1], a.header)
			}
		}
	}
	b.get(404, "/ui/assets/0000000000000000/sema.js")
	b.get(404, "/ui/assets/0000000000000000/htmx.LICENSE")
}

// TestDashboard_WrongMethod checks that a page rejects other methods, and lists its own.
func TestDashboard_WrongMethod(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for path, allow := range map[string]string{
		"/ui/": "GET, HEAD", "/ui/semaphore": "GET, HEAD", "/ui/live": "GET, HEAD", "/ui/confirm": "GET, HEAD", "/ui/do": "POST", "/ui/login": "GET, HEAD, POST", "/ui/logout": "POST",
	} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS"} {
			response, text := s.exchange(method, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if response.StatusCode != 405 || response.Header.Get("Allow") != allow || !strings.Contains(text, "Method not allowed") {
				t.Errorf("%s %s: %s, Allow %q, want %q: %s", method, path, response.Status, response.Header.Get("Allow"), allow, text)
			}
		}
	}
	if response, _ := s.exchange("PUT", "PUT /ui/none HTTP/1.1\r\nHost: localhost\r\n\r\n"); response.StatusCode != 404 {
		t.Errorf("PUT /ui/none: %s", response.Status)
	}
}

// TestDashboard_EscapesNamesAndHolders checks that names and holders' texts are escaped.
func TestDashboard_EscapesNamesAndHolders(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	b := s.tab()
	names := []string{`<script>alert(1)</script>`, `a/b/../c`, `..`, `.`, `"onload="x`, `%2F?&#`, `'x'`, `+a+b`, `\n`, `javascript:alert(1)`}
	const meta = `<img src=x onerror=alert(2)>`
	for _, name := range names {
		s.want(200, "POST", "/v1/batch", fmt.Sprintf(`{"requests": [{"op": "acquire", "semaphore": %q, "capacity": 2, "holder": %q}]}`, name, meta))
	}
	overview := b.get(200, "/ui/")
	next, end := b.live("sort=name")
	defer end()
	first := next()
	for _, name := range names {
		link := regexp.MustCompile(`<a href="([^"]+)">` + regexp.QuoteMeta(escaped(name)) + `</a>`).FindStringSubmatch(overview.text)
		if link == nil {
			t.Errorf("there is no link to %q", name)
			continue
		}
		p := b.get(200, html.UnescapeString(link[1]))
		p.contains(t, name, meta, "1 of 2")
		for _, text := range []string{p.text, first.Parts["s:"+name], overview.text} {
			if strings.Contains(text, "<img src=x") || strings.Contains(text, "<script>") || strings.Contains(text, `"onload="`) {
				t.Errorf("%q is not escaped: %s", name, text)
			}
		}
	}
	if len(first.Lists["rows"]) != len(names) {
		t.Errorf("rows %v", first.Lists["rows"])
	}
}

// escaped returns text as html/template escapes it.
func escaped(text string) string {
	return strings.NewReplacer("+", "&#43;").Replace(html.EscapeString(text))
}

func watchers() server.Options {
	return server.Options{Tokens: []server.Token{
		{Name: "ops", Hash: server.HashToken("secret-ops"), Verbs: server.Verbs()},
		{Name: "reader", Hash: server.HashToken("secret-reader"), Prefix: "ci-", Verbs: []server.Verb{server.Read}},
		{Name: "worker", Hash: server.HashToken("secret-worker"), Verbs: []server.Verb{server.Acquire}},
	}}
}

func (b *tab) login(token string) {
	b.t.Helper()
	if p := b.post(303, "/ui/login", form("token", token, "next", "/ui/semaphore?name=a%2Fb")); p.header.Get("Location") != "/ui/semaphore?name=a%2Fb" {
		b.t.Errorf("redirected to %q", p.header.Get("Location"))
	}
}

func TestDashboard_Login(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	b := s.tab()
	b.get(401, "/ui/semaphore?name=db").contains(t, "Log in", "/ui/semaphore?name=db")
	b.get(401, "/ui/live")
	if p := b.get(401, "/ui/confirm?name=db&do=drain", header{"HX-Request", "true"}); p.header.Get("HX-Refresh") != "true" {
		t.Errorf("%v", p.header)
	}
	wrong := b.post(401, "/ui/login", form("token", "secret-guess"))
	wrong.contains(t, "Unknown token")
	if wrong.header.Get("WWW-Authenticate") == "" || strings.Contains(wrong.text, "secret-guess") || wrong.header.Get("Set-Cookie") != "" {
		t.Errorf("%v %s", wrong.header, wrong.text)
	}
	b.post(403, "/ui/login", form("token", "secret-worker")).contains(t, `token "worker" lacks the verb read; its verbs are acquire`)
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", `/\evil.example`, "/v1/semaphores", "/ui/../v1/semaphores", "javascript:alert(1)", ""} {
		if p := s.tab().post(303, "/ui/login", form("token", "secret-ops", "next", next)); p.header.Get("Location") != "/ui/" {
			t.Errorf("%q redirects to %q", next, p.header.Get("Location"))
		}
	}
	b.login("secret-ops")
	b.get(200, "/ui/").contains(t, "ops", "Log out", `-H "Authorization: Bearer $SEMA_TOKEN"`) // the variable that sema reads as well
	b.get(303, "/ui/login")
	// The cookie is valid only for pages.
	kept := b.browser.Jar.Cookies(&url.URL{Scheme: "http", Host: strings.TrimPrefix(s.url, "http://"), Path: "/ui/"})
	if len(kept) != 1 {
		t.Fatalf("%v", kept)
	}
	cookie := header{"Cookie", kept[0].String()}
	b.get(401, "/v1/semaphores", cookie)
	b.post(401, "/sema.v1.SemaService/List", nil, cookie, header{"Content-Type", "application/json"})
	gone := b.post(303, "/ui/logout", nil)
	if c := gone.header.Get("Set-Cookie"); !strings.Contains(c, "Max-Age=0") {
		t.Errorf("%q", c)
	}
	b.get(401, "/ui/")
	b.get(401, "/ui/", header{"Cookie", "sema-token=" + strings.Repeat("A", 40)})
	b.get(200, "/ui/", header{"Authorization", "Bearer secret-ops"})
	if strings.Contains(s.log.String(), "secret") {
		t.Errorf("%s", s.log)
	}
}

func TestDashboard_Cookie(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	set := func(change func(*http.Request)) string {
		r := httptest.NewRequest("POST", "/ui/login", strings.NewReader("token=secret-ops"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(r)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Header().Get("Set-Cookie")
	}
	plain := set(func(*http.Request) {})
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/ui/"} {
		if !strings.Contains(plain, part) || strings.Contains(plain, "Secure") || strings.Contains(plain, "secret") {
			t.Errorf("%q", plain)
		}
	}
	for _, c := range []string{set(func(r *http.Request) { r.TLS = &tls.ConnectionState{} }), set(func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") })} {
		if !strings.Contains(c, "Secure") {
			t.Errorf("%q", c)
		}
	}
}

// TestDashboard_AuthorizesViewers checks that viewers see only semaphores with their prefix.
// Viewers that may not change anything get no buttons, and their actions are rejected.
func TestDashboard_AuthorizesViewers(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	s.auth = "secret-ops"
	for _, name := range []string{"ci-a", "vault"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=1", "")
	}
	seq := s.leases("ci-a")[0]
	b := s.tab()
	b.login("secret-reader")
	next, end := b.live("q=")
	defer end()
	if first := next(); !slices.Equal(first.Lists["rows"], []string{"s:ci-a"}) || strings.Contains(fmt.Sprint(first), "vault") {
		t.Errorf("%+v", first)
	}
	if p := b.get(200, "/ui/"); strings.Contains(p.text, "vault\"") || strings.Contains(p.text, ">vault<") {
		t.Error(p.text)
	}
	for _, path := range []string{"/ui/semaphore?name=vault", "/ui/live?name=vault", "/ui/confirm?do=drain&name=vault"} {
		b.get(404, path)
	}
	b.post(404, "/ui/do", form("do", "drain", "name", "vault"))
	p := b.get(200, "/ui/semaphore?name=ci-a")
	if strings.Contains(p.text, "/ui/confirm") || strings.Contains(p.text, "Drain") || strings.Contains(p.text, "Revoke…") {
		t.Errorf("there are buttons: %s", p.text)
	}
	b.get(403, "/ui/confirm?do=drain&name=ci-a").contains(t, "a token that has the verb admin")
	for _, f := range []url.Values{
		form("do", "drain"), form("do", "resume"), form("do", "resize", "capacity", "5", "ramp", "0", "version", "1"),
		form("do", "revoke", "lease", seq), form("do", "revoke", "lease", seq, "at_once", "1", "sure", "1"), form("do", "delete", "sure", "1"),
	} {
		f.Set("name", "ci-a")
		b.post(403, "/ui/do", f).contains(t, `token "reader" lacks the verb admin on "ci-a"; its verbs are read, on names with the prefix "ci-"`)
	}
	if a := s.want(200, "GET", "/v1/semaphores/ci-a", ""); a.body["draining"] == true || a.body["capacity"] != 1.0 || a.body["in_use"] != 1.0 {
		t.Errorf("%v", a.body)
	}
}

// TestDashboard_RejectsCrossOriginActions checks that a page of another site, or one that uses
// another name for this machine, cannot make a browser change anything.
func TestDashboard_RejectsCrossOriginActions(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	b := s.tab()
	for _, h := range []header{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}, {"Host", "evil.example"}} {
		b.post(403, "/ui/do", form("do", "drain", "name", "db"), h)
	}
	for _, path := range []string{"/ui/", "/ui/live", "/ui/semaphore?name=db"} {
		b.get(403, path, header{"Host", "evil.example"})
	}
	b.send("GET", "/ui/do?do=drain&name=db", nil)
	if s.want(200, "GET", "/v1/semaphores/db", "").body["draining"] == true {
		t.Error("the semaphore was drained")
	}
	b.post(200, "/ui/do", form("do", "drain", "name", "db"), header{"Origin", s.url}, header{"Sec-Fetch-Site", "same-origin"})
	if s.want(200, "GET", "/v1/semaphores/db", "").body["draining"] != true {
		t.Error("the semaphore was not drained")
	}
	tokens := start(t, watchers()).tab()
	tokens.post(403, "/ui/login", form("token", "secret-ops"), header{"Origin", "https://evil.example"})
	tokens.login("secret-ops")
	tokens.post(403, "/ui/logout", nil, header{"Origin", "https://evil.example"})
	tokens.get(200, "/ui/")
}

// TestDashboard_StreamsAreLimitedAndEnd checks that streams of pages are counted, end when the
// server is stopped, and do not delay that.
func TestDashboard_StreamsAreLimitedAndEnd(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Limits: server.Limits{Streams: 1}})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2", "")
	b := s.tab()
	next, end := b.live("name=db")
	defer end()
	first := next()
	if !first.Live || !strings.Contains(first.Parts["state"], "1 <small>of 2") || len(first.Lists["holders"]) != 1 {
		t.Errorf("%+v", first)
	}
	b.get(503, "/ui/live").contains(t, "limits.streams of this server is 1,")
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	for c := next(); !strings.Contains(c.Parts["state"], "2 <small>of 2"); c = next() {
		if c.ended {
			t.Fatal("the stream has ended")
		}
	}
	began := time.Now()
	s.EndStreams()
	for !next().ended {
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	b.get(503, "/ui/live")
	b.get(200, "/ui/semaphore?name=db")
}

func TestDashboard_ShowsAnOutage(t *testing.T) {
	t.Parallel()
	s := open(t, downStore{memstore.New()}, server.Options{})
	b := s.tab()
	b.get(503, "/ui/semaphore?name=db").contains(t, "The store has not responded since", "connection refused")
	b.post(503, "/ui/do", form("do", "drain", "name", "db"), header{"HX-Request", "true"}).contains(t, "Not done", "connection refused")
	next, end := b.live("name=db")
	defer end()
	if c := next(); c.Live || !strings.Contains(c.Parts["trouble"], "connection refused") {
		t.Errorf("%+v", c)
	}
}

// A faultyStore is slow or fails, as set by a test, and counts reads.
type faultyStore struct {
	*memstore.Store
	takes         atomic.Int64
	down, broken  atomic.Pointer[string] // everything fails; one semaphore fails
	asked, asking atomic.Int64
	lists         atomic.Int64
}

func (m *faultyStore) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	m.lists.Add(1)
	if m.down.Load() != nil {
		return nil, errors.New(`semaphore "vault": connection refused`)
	}
	return m.Store.List(ctx, q)
}

func (m *faultyStore) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	m.asked.Add(1)
	m.asking.Add(1)
	defer m.asking.Add(-1)
	select {
	case <-time.After(time.Duration(m.takes.Load())):
	case <-ctx.Done():
		return protocol.Snapshot{}, ctx.Err()
	}
	if one := m.broken.Load(); m.down.Load() != nil || one != nil && *one == name {
		return protocol.Snapshot{}, fmt.Errorf("semaphore %q: connection refused", name)
	}
	return m.Store.Inspect(ctx, name)
}

// TestDashboard_PagesShareAQuery checks that pages that are loaded at the same time share one
// query, whatever the number of semaphores.
func TestDashboard_PagesShareAQuery(t *testing.T) {
	t.Parallel()
	m := &faultyStore{Store: memstore.New()}
	s := open(t, m, server.Options{})
	const semaphores, viewers = 60, 40
	for i := range semaphores {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/service-%d/leases?capacity=2", i), "")
	}
	m.takes.Store(int64(2 * time.Millisecond))
	m.asked.Store(0)
	m.lists.Store(0)
	start := time.Now()
	var wg sync.WaitGroup
	for range viewers {
		wg.Go(func() {
			if p := s.tab().get(200, "/ui/"); strings.Count(p.text, "<tr id=") != semaphores {
				t.Errorf("there are %d rows", strings.Count(p.text, "<tr id="))
			}
		})
	}
	wg.Wait()
	reads := int64(time.Since(start)/time.Second) + 1
	samples := int64(time.Since(start)/(5*time.Second)) + 1 // the server lists for itself, too
	if asked, lists := m.asked.Load(), m.lists.Load(); asked != 0 || lists > reads+samples {
		t.Errorf("%d page loads were %d inspects and %d lists", viewers, asked, lists)
	}
}

// TestDashboard_HidesFailuresOfOtherPrefixes checks that viewers with a prefix do not see errors
// about other semaphores. The log has them.
func TestDashboard_HidesFailuresOfOtherPrefixes(t *testing.T) {
	t.Parallel()
	m := &faultyStore{Store: memstore.New()}
	s := open(t, m, watchers())
	s.auth = "secret-ops"
	for _, name := range []string{"vault", "ci-a"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=1", "")
	}
	ops, reader := s.tab(), s.tab()
	ops.login("secret-ops")
	reader.login("secret-reader")
	m.down.Store(new(string))
	for _, query := range []string{"name=vault", ""} {
		_, end := ops.live(query)
		defer end()
	}
	for _, query := range []string{"name=ci-a", "q="} {
		next, end := reader.live(query)
		defer end()
		for range 3 {
			if c := next(); c.Live || strings.Contains(fmt.Sprint(c), "vault") || !strings.Contains(c.Parts["trouble"], "The store has not responded since") && c.Parts["trouble"] != "" {
				t.Errorf("%s: %+v", query, c)
			}
		}
	}
	if p := reader.get(503, "/ui/semaphore?name=ci-a"); strings.Contains(p.text, "vault") {
		t.Error(p.text)
	}
	if p := reader.get(200, "/ui/"); strings.Contains(p.text, "vault") {
		t.Error(p.text)
	}
	s.EndStreams()
	if n := strings.Count(s.log.String(), "the store does not respond"); n != 1 {
		t.Errorf("%d times in the log: %s", n, s.log)
	}
}

// TestDashboard_DistinguishesOutages checks that an outage of the store is shown with its start
// time. Neither a viewer that leaves nor one unreadable semaphore is an outage.
func TestDashboard_DistinguishesOutages(t *testing.T) {
	t.Parallel()
	m := &faultyStore{Store: memstore.New()}
	s := open(t, m, server.Options{})
	for _, name := range []string{"a", "b"} {
		s.want(201, "POST", "/v1/semaphores/"+name+"/leases?capacity=1&ttl=60s", "")
	}
	b := s.tab()
	m.takes.Store(int64(time.Second / 2))
	ctx, leave := context.WithTimeout(t.Context(), time.Second/10)
	defer leave()
	request, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/ui/semaphore?name=a", nil)
	if _, err := b.browser.Do(request); err == nil {
		t.Fatal("the request was not cancelled")
	}
	waitFor(t, "nothing is asked for any more", func() bool { return m.asking.Load() == 0 })
	m.takes.Store(0)
	left := time.Now()

	one := "b"
	m.broken.Store(&one)
	broken := b.get(503, "/ui/semaphore?name=b")
	broken.contains(t, "This semaphore cannot be read", `semaphore "b": connection refused`)
	next, end := b.live("name=b")
	defer end()
	if c := next(); c.Live || !strings.Contains(c.Parts["trouble"], "This semaphore cannot be read") {
		t.Errorf("%+v", c)
	}
	b.get(200, "/ui/semaphore?name=a").contains(t, "1 of 1")
	for _, p := range []page{broken, b.get(200, "/ui/"), b.get(200, "/ui/?q=b")} {
		if strings.Contains(p.text, "The store has not") {
			t.Error(p.text)
		}
	}
	end()

	waitFor(t, "it is another second", func() bool { return time.Since(left) > 1100*time.Millisecond })
	down := time.Now().Truncate(time.Second)
	m.down.Store(&one)
	text := b.get(503, "/ui/semaphore?name=a").text
	for at := down; !strings.Contains(text, "has not responded since "+at.Format(time.TimeOnly)); at = at.Add(time.Second) {
		if at.After(time.Now()) {
			t.Fatalf("want since %v: %s", down, text)
		}
	}
}

// TestDashboard_RequiresTheRoot checks that the dashboard rejects requests under another path
// than /ui/, because its links would not work.
func TestDashboard_RequiresTheRoot(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	under := httptest.NewServer(http.StripPrefix("/sema", s.Server))
	defer under.Close()
	s.url = under.URL + "/sema"
	b := s.tab()
	for _, path := range []string{"/ui/", "/ui/semaphore?name=db", "/ui/login"} {
		b.get(404, path).contains(t, "without http.StripPrefix")
	}
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "") // everything else works there
}
