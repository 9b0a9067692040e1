package server_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/x/server"
)

// A window is a real browser with a site open.
type window struct {
	*site
	ctx     context.Context
	mu      sync.Mutex
	console []string // messages on the console
}

// window opens a browser, which is closed when the test ends. The test fails if a page sends a
// request to another host.
func (s *site) window() *window {
	s.t.Helper()
	path := storetest.Need(s.t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	w := &window{site: s, ctx: ctx}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		s.t.Fatal(err)
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if at := r.Request.URL; !strings.HasPrefix(at, s.url+"/") && !strings.HasPrefix(at, "about:") && !strings.HasPrefix(at, "data:") {
				s.t.Errorf("request to another host: %s", at)
			}
		}
	})
	listening.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			w.mu.Lock()
			w.console = append(w.console, fmt.Sprintf("%s (%s)", m, m.URL))
			w.mu.Unlock()
		}
	})
	s.t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			s.t.Error(err)
		}
		closeTab()
		stop()
		listening.Wait()
	})
	return w
}

func (w *window) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.t.Fatalf("%s: %v\n%s", what, err, w.text())
	}
}

func (w *window) open(path string) {
	w.t.Helper()
	w.do("open "+path, chromedp.Navigate(w.url+path))
}

func (w *window) click(css string) {
	w.t.Helper()
	w.do("click "+css, chromedp.Click(chromedp.CSS(css)))
}

// is evaluates a condition in the page.
func (w *window) is(condition string) bool {
	ok, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
	return err == nil && ok // evaluation fails while the page is being replaced
}

// sees waits until a condition holds in the page.
func (w *window) sees(condition string) {
	w.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !w.is(condition); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("timeout waiting until %s:\n%s", condition, w.text())
		}
	}
}

// shows waits until an element contains a text.
func (w *window) shows(css, text string) {
	w.t.Helper()
	w.sees(fmt.Sprintf("document.querySelector(%q)?.textContent.replace(/\\s+/g, ' ').includes(%q)", css, text))
}

func (w *window) text() string {
	text, _ := chromedp.Run(w.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// quiet fails if there were messages on the console.
func (w *window) quiet() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.console) > 0 {
		w.t.Errorf("messages on the console:\n%s", strings.Join(w.console, "\n"))
	}
}

// TestDashboard_InABrowser checks that changes by other clients appear as they happen, and that
// actions are confirmed, performed and reported, all without reloading the page.
func TestDashboard_InABrowser(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	w := s.window()
	const at = "/v1/semaphores/db%2Fmain"
	w.open("/ui/")
	w.shows("#live", "live")
	w.shows("#empty", "No semaphores yet")
	w.is("window.loaded = 'once'")

	first := s.want(201, "POST", at+"/leases?capacity=2&ttl=60s&holder=first", "").header.Get("Location")
	w.shows("#rows", "db/main")
	w.shows("#rows", "1 of 2")
	s.want(201, "POST", at+"/leases?holder=second", "")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.want(201, "POST", at+"/leases?holder=third&wait=30s", "") })
	w.shows("#rows", "2 of 2")
	w.shows("#rows .waiting", "1")
	w.shows("#summary", "1 waiting")
	w.sees("window.loaded === 'once'")

	w.do("filter", chromedp.SendKeys(chromedp.CSS("#filter"), "nothing"))
	w.shows("#empty", "No name contains “nothing”")
	w.sees("location.search.includes('nothing')")
	w.do("clear", chromedp.SendKeys(chromedp.CSS("#filter"), strings.Repeat("\b", len("nothing"))))
	w.shows("#rows", "db/main")
	w.shows("#live", "live")
	w.sees("window.loaded === 'once'")

	w.click("#rows .name a")
	w.shows("h1", "db/main")
	w.shows("#live", "live")
	w.shows("#holders", "first")
	w.shows("#waiters", "third")
	w.is("window.loaded = 'twice'")
	w.click("#holders tr:first-child .button")
	w.shows("dialog[open]", `Revoke 1 permit of "db/main"`)
	w.click("dialog [data-close]")
	w.sees("!document.querySelector('dialog').open")
	w.click("#holders tr:first-child .button")
	w.shows("dialog[open]", `Revoke 1 permit of "db/main"`)
	w.do("why", chromedp.SendKeys(chromedp.CSS("dialog #why"), "it hangs"))
	w.click("dialog .primary")
	w.shows("#result", "The holder is notified")
	w.sees("!document.querySelector('dialog').open")
	w.shows("#holders tr:first-child", "revoked")
	s.want(410, "PUT", first, "") // the holder is notified
	w.shows("#holders", "third")
	w.shows("#waiters-note", "No acquire is waiting.")

	w.click("#verbs .button:first-child")
	w.shows("dialog[open]", `Drain "db/main"? 2 permits in use stay held`)
	w.click("dialog .primary")
	w.shows("#result", `Draining "db/main"`)
	w.shows("#state", "draining")
	w.shows("#verbs", "Resume…")
	if s.want(200, "GET", at, "").body["draining"] != true {
		t.Error("not draining")
	}
	w.click("#verbs .button:first-child")
	w.shows("dialog[open]", `Resume "db/main"?`)
	w.click("dialog .primary")
	w.shows("#verbs", "Drain…")

	w.do("capacity", chromedp.SetValue(chromedp.CSS("#capacity"), "7"))
	w.click(".resize button")
	w.shows("dialog[open]", `Set the capacity of "db/main" from 2 to 7?`)
	w.click("dialog .primary")
	w.shows("#settings", "Capacity7")
	w.shows("#state", "2 of 7")
	w.sees("window.loaded === 'twice'")
	w.quiet()

	// A hidden tab has no stream.
	streams := func(n int) func() bool {
		return func() bool {
			return strings.Contains(s.want(200, "GET", "/metrics", "").text, fmt.Sprintf("sema_http_streams %d\n", n))
		}
	}
	waitFor(t, "the page has a stream", streams(1))
	const hide = "Object.defineProperty(document, 'hidden', {value: %t, configurable: true}), document.dispatchEvent(new Event('visibilitychange'))"
	w.is(fmt.Sprintf(hide, true))
	waitFor(t, "it has none", streams(0))
	w.is(fmt.Sprintf(hide, false))
	waitFor(t, "it has one again", streams(1))
	w.shows("#live", "live")
	w.quiet()

	w.click("#verbs .danger")
	w.shows("dialog[open]", `Delete "db/main"?`)
	w.click("dialog .danger") // rejected: the box is not ticked
	w.sees("document.querySelector('dialog').open")
	w.click("dialog [name=sure]")
	w.click("dialog .danger")
	w.shows("#result", `Deleted "db/main"`)
	w.shows("#state", "The semaphore was deleted.")
	w.quiet()

	s.EndStreams()
	w.shows("#live", "not live since")
}

// TestDashboard_InABrowserWithASlowStore checks that a page over a slow store shows its age,
// and is still live.
func TestDashboard_InABrowserWithASlowStore(t *testing.T) {
	t.Parallel()
	m := &faultyStore{Store: memstore.New()}
	s := open(t, m, server.Options{})
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=5&ttl=60s", "")
	w := s.window()
	w.open("/ui/semaphore?name=db")
	w.is("new MutationObserver(() => { if (document.querySelector('#live').dataset.state === 'lost') window.lost = true }).observe(document.querySelector('#live'), {attributes: true}), true")
	w.shows("#live-text", "live")
	m.takes.Store(int64(2500 * time.Millisecond))
	w.shows("#live-text", "live, as of ")
	s.want(201, "POST", "/v1/semaphores/db/leases?ttl=60s", "")
	w.shows("#state", "2 of 5")
	w.sees("!window.lost")
	w.quiet()
}

// TestDashboard_InABrowserWithoutScripts checks that everything works without scripts, and that
// users log in.
func TestDashboard_InABrowserWithoutScripts(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	s.auth = "secret-ops"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2&ttl=60s&holder=first", "")
	w := s.window()
	w.open("/ui/") // the first page starts the browser
	if _, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	w.open("/ui/semaphore?name=db")
	w.do("log in", chromedp.SendKeys(chromedp.CSS("#token"), "secret-ops\n"))
	w.shows("h1", "db")
	w.shows("#holders", "first")
	w.shows(".viewer", "ops")
	w.sees("document.cookie === ''") // scripts cannot read the cookie
	w.click("#verbs .button:first-child")
	w.shows("main", `Drain "db"? 1 permit in use stays held`)
	w.click("main .primary")
	w.shows("#result", `Draining "db"`)
	w.shows("#state", "draining")
	w.click(".crumbs a")
	w.shows("#rows", "draining")
	w.click("header .quiet")
	w.shows("h1", "Log in")
}

// TestDashboard_InABrowserHostileTextIsInert checks that names, holders and reasons with HTML run no
// script: in pages as loaded, in parts that the stream sends, and in dialogs.
func TestDashboard_InABrowserHostileTextIsInert(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	const attack = `<img/src=x/onerror=window.attacked=1><script>window.attacked=1</script>"onfocus="window.attacked=1`
	at := "/v1/semaphores/" + url.PathEscape(attack)
	acquire := func() {
		t.Helper()
		s.want(201, "POST", at+"/leases?capacity=4&ttl=60s&"+url.Values{"holder": {attack}}.Encode(), "")
	}
	acquire()
	s.want(200, "POST", at+"/drain", "")
	s.want(200, "POST", at+"/resume", "")
	w := s.window()
	inert := func() {
		t.Helper()
		w.sees(`document.querySelector("main").textContent.includes("onerror=window.attacked")`)
		w.sees(`!window.attacked && !document.querySelector("main img, main script, [onfocus], [onerror]")`)
	}
	w.open("/ui/")
	w.shows("#live", "live")
	inert()
	detail := "/ui/semaphore?" + url.Values{"name": {attack}}.Encode()
	for _, path := range []string{"/ui/?group=1", "/ui/activity", "/ui/clients", "/ui/?q=" + url.QueryEscape(attack), detail} {
		w.open(path)
		inert()
	}
	w.shows("#live", "live")
	acquire()
	w.shows("#state", "2 of 4")
	w.sees("document.querySelectorAll('#holders tr').length === 2")
	inert()
	for _, button := range []string{"#verbs .danger", "#holders .act a", "#holdings .revoke"} {
		w.click(button)
		w.shows("dialog[open]", "onerror=window.attacked")
		w.sees(`!document.querySelector("dialog img, dialog script, dialog [onfocus]") && !window.attacked`)
		w.click("dialog [data-close]")
	}
	w.quiet()
}

// TestDashboard_InABrowserCreatesBelowAPrefix types a name as a viewer whose token has a prefix: the form has it
// already, and what is typed follows it.
func TestDashboard_InABrowserCreatesBelowAPrefix(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{{Name: "team", Hash: server.HashToken("secret-team"), Prefix: "team-", Verbs: server.Verbs()}}})
	s.auth = "secret-team"
	w := s.window()
	w.open("/ui/")
	w.do("log in", chromedp.SendKeys(chromedp.CSS("#token"), "secret-team\n"))
	w.shows("#live", "live")
	w.click(".tools .primary")
	w.shows("dialog[open]", "New semaphore")
	w.do("type", chromedp.KeyEvent("db\r"))
	w.shows("h1", "team-db")
	s.want(200, "GET", "/v1/semaphores/team-db", "")
}

// TestDashboard_InABrowserLoggedOutElsewhere checks that a page whose token is no longer valid asks for one,
// instead of reconnecting for ever.
func TestDashboard_InABrowserLoggedOutElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	w := s.window()
	w.open("/ui/")
	w.do("log in", chromedp.SendKeys(chromedp.CSS("#token"), "secret-ops\n"))
	w.shows("#live", "live")
	w.is(`fetch("/ui/logout", {method: "POST"}).then(() => window.out = true), true`)
	w.sees("window.out")
	s.EndStreams()
	w.shows("h1", "Log in")
}

// TestDashboard_InABrowserQuestionsInTheirOwnTab opens a question and the form for a new semaphore as
// pages of their own, as a click with Ctrl does, and checks that their buttons work.
func TestDashboard_InABrowserQuestionsInTheirOwnTab(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=2&ttl=60s&holder=first", "").body["lease"]
	w := s.window()
	w.open("/ui/confirm?do=drain&name=db")
	w.click("main .primary")
	w.shows("#result", `Draining "db"`)
	w.shows("#state", "draining")
	w.open(fmt.Sprintf("/ui/confirm?do=revoke&name=db&lease=%.0f", lease))
	w.click("main .warning [name=sure]")
	w.click("main .warning .danger")
	w.shows("#result", "Revoked at once")
	w.shows("#state", "drained")
	w.open("/ui/new")
	w.do("fill", chromedp.SendKeys(chromedp.CSS("#new-name"), "api"), chromedp.SendKeys(chromedp.CSS("#new-ttl"), "soon"))
	w.click("main .primary")
	w.shows("main [role=alert]", "The TTL is a duration")
	w.sees("document.querySelectorAll('#new-name').length === 1")
	w.do("fill", chromedp.SetValue(chromedp.CSS("#new-ttl"), "1m"))
	w.click("main .primary")
	w.shows("h1", "api")
	w.shows("#settings", "TTL1m")
}
