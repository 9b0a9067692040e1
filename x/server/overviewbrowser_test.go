package server_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/axe"
	"github.com/sema-go/sema/x/server"
)

// accessible fails if axe finds violations in the page, in light or dark.
func (w *window) accessible() {
	w.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		w.scheme(scheme)
		await := func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }
		w.do("load axe", chromedp.Evaluate[chromedp.Void](axe.Script()+"\n;0"))
		found, err := chromedp.Run(w.ctx, chromedp.Evaluate[string](axe.Violations, await))
		if err != nil || found != "" {
			w.t.Errorf("%s: %v\n%s", scheme, err, found)
		}
	}
	w.scheme("light")
}

// scheme sets the preferred colour scheme.
func (w *window) scheme(name string) {
	w.t.Helper()
	feature := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: feature}); err != nil {
		w.t.Fatal(err)
	}
}

// picture writes a picture of the window to a directory that a developer has asked for, in light,
// dark, and on a phone.
func (w *window) picture(name string) {
	directory := os.Getenv("SEMA_SCREENSHOTS")
	if directory == "" {
		return
	}
	for _, c := range []struct {
		scheme string
		width  int64
	}{{"light", 1280}, {"dark", 1280}, {"light", 390}} {
		w.scheme(c.scheme)
		w.do("size", chromedp.EmulateViewport(c.width, 900))
		raw, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("%s/%s-%s-%d.png", directory, name, c.scheme, c.width), raw, 0o600)
		}
		if err != nil {
			w.t.Error(err)
		}
	}
	w.scheme("light")
	w.do("size", chromedp.EmulateViewport(1280, 900))
}

// TestOverview_InABrowser checks the totals, the problems in words, filters, orders, groups, the
// form for new semaphores, the keyboard, and that declared semaphores are listed before their first
// use.
func TestOverview_InABrowser(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "mail", Capacity: 5}, {Name: "api/tokens", Capacity: 6, Window: 10 * time.Minute}}})
	for range 3 {
		s.want(201, "POST", "/v1/semaphores/db%2Fmain/leases?capacity=3&ttl=60s", "")
	}
	s.want(201, "POST", "/v1/semaphores/db%2Freplica/leases?capacity=3&ttl=60s", "")
	s.want(201, "POST", "/v1/semaphores/api%2Ftokens/leases?weight=6", "")
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 2 {
		wg.Go(func() { s.send("POST", "/v1/semaphores/db%2Fmain/leases?wait=40s", "") })
	}
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1280, 900))
	w.open("/ui/")
	w.shows("#live", "live")
	w.shows("#rows tr:first-child", "2 waiting, head ")
	w.shows("#rows", "mail 0 of 5")
	w.shows("#rows", "declared")
	w.shows("#rows", "spent, next in 9m")
	w.shows("#summary", "1 with problems")
	w.sees("[...document.querySelectorAll('#rows tr')].every(r => r.offsetHeight <= 33)")
	w.sees("document.querySelector('#summary').textContent.match(/Acquires[0-9.,]+/)") // the first sample has been taken
	w.sees("document.querySelector('#rows .spark path')")
	w.accessible()
	w.picture("overview")

	rows := func(n int) string { return fmt.Sprintf("document.querySelectorAll('#rows tr').length === %d", n) }
	for filter, want := range map[string]int{"is:waiting": 1, "is:full": 2, "db is:full": 1, "wait>1h": 0, "held>0s db": 2, "is:idle": 1} {
		w.do("filter", chromedp.SetValue(chromedp.CSS("#filter"), filter))
		w.is("document.querySelector('#filter').dispatchEvent(new Event('input', {bubbles: true}))")
		w.sees("document.querySelector('#semaphores').dataset.stream.includes('q=" + map[string]string{"is:waiting": "is%3Awaiting", "is:full": "is%3Afull", "db is:full": "db+is", "wait>1h": "wait%3E1h", "held>0s db": "held", "is:idle": "is%3Aidle"}[filter] + "')")
		w.sees(rows(want))
	}
	w.open("/ui/?q=is:bad")
	w.shows("#empty", "is:full, is:waiting")
	w.open("/ui/?q=age%3E5s")
	w.shows("#empty", "wait and held can be compared")
	w.open("/ui/?q=wait%3Esoon")
	w.shows("#empty", "such as wait>5s")
	w.accessible()

	w.open("/ui/")
	w.click("th:first-child a")
	w.shows("#rows tr:first-child", "api/tokens")
	w.click("th:first-child a")
	w.shows("#rows tr:first-child", "mail")
	w.sees("document.querySelector('th[aria-sort=descending]').textContent === 'Name'")

	w.open("/ui/?group=1")
	w.shows("#rows tr.group", "db/ 2 4 of 6")
	w.sees(rows(3))
	w.click("#rows tr.group a")
	w.sees(rows(5))
	w.sees("document.querySelector('#rows tr.group a').getAttribute('aria-expanded') === 'true'")
	w.shows("#live", "live")
	w.accessible()
	w.picture("groups")
	w.click("#rows tr.group a")
	w.sees(rows(3))

	w.open("/ui/")
	w.shows("#live", "live")
	key := func(k string) { w.do("press "+k, chromedp.KeyEvent(k)) }
	key("?")
	w.shows("dialog[open]", "Keyboard")
	w.accessible()
	w.picture("help")
	w.click("dialog[open] [data-close]")
	key("j")
	key("j")
	key("k")
	w.sees("document.activeElement.closest('tr') === document.querySelector('#rows tr')")
	key("\r")
	w.shows("h1", "db/main")

	w.open("/ui/")
	w.click(".tools .primary")
	w.shows("dialog[open]", "New semaphore")
	w.accessible()
	w.do("name", chromedp.SetValue(chromedp.CSS("#new-name"), "mail"))
	w.do("ttl", chromedp.SetValue(chromedp.CSS("#new-ttl"), "soon"))
	w.click("dialog .primary")
	w.shows("dialog .result", "The TTL is a duration")
	w.do("ttl", chromedp.SetValue(chromedp.CSS("#new-ttl"), "20s"))
	w.do("name", chromedp.SetValue(chromedp.CSS("#new-name"), "jobs:import"))
	w.click("dialog .primary")
	w.shows("h1", "jobs:import")
	w.shows("#settings", "Capacity10")
	w.open("/ui/semaphore?name=mail")
	w.shows("#state", "0 of 5")
	w.quiet()
	s.EndStreams()
}

// TestOverview_TenThousandInABrowser checks that the overview of 10,000 semaphores has one page of
// rows, and that a change replaces few of its nodes: that is what keeps it responsive on any
// machine. It logs how long the page takes to appear and to change.
func TestOverview_TenThousandInABrowser(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	config := protocol.Config{Protocol: protocol.Version, Capacity: 4, TTL: 3_600_000_000}
	for i := range 10_000 {
		if _, _, err := store.Open(t.Context(), fmt.Sprintf("tenant-%02d:s-%04d", i%50, i), config, protocol.Opener{Client: protocol.Client{Instance: "crowd"}}); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, store, server.Options{Limits: server.Limits{Names: 20_000}})
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1280, 900))
	w.open("/ui/login") // starts the browser
	before := time.Now()
	w.open("/ui/")
	w.sees("document.querySelectorAll('#rows tr').length === 500")
	shown := time.Since(before)
	w.shows("#live", "live")
	w.shows("#summary", "10,000 semaphores")
	// The time from an event of the stream until the page is laid out.
	w.is(`(() => { const parse = JSON.parse; window.took = []; JSON.parse = text => { const start = performance.now(); setTimeout(() => { document.body.offsetHeight; window.took.push(performance.now() - start); window.animated = (window.animated || 0) + document.getAnimations().filter(a => a.effect.target.closest("#rows")).length }); return parse(text) }; return true })()`)
	w.is(`(() => { window.added = 0; new MutationObserver(all => { for (const m of all) window.added += m.addedNodes.length }).observe(document.querySelector('#rows'), {childList: true, subtree: true}); return true })()`)
	before = time.Now()
	s.want(201, "POST", "/v1/semaphores/tenant-49:s-9999/leases?ttl=60s", "")
	w.shows("#rows tr:first-child", "tenant-49:s-9999")
	changed := time.Since(before)
	w.sees("window.took.length >= 4")
	number := func(script string) float64 {
		n, err := chromedp.Run(w.ctx, chromedp.Evaluate[float64](script))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	slowest, updates, added := number("Math.max(...window.took)"), number("window.took.length"), number("window.added")
	if added > 10*updates {
		t.Errorf("%v nodes were added by %v updates for one semaphore", added, updates)
	}
	if n := number("window.animated"); n > 0 {
		t.Errorf("%v rows were animated; hundreds take half of a second of processor time an update", n)
	}
	w.shows("#paging", "Showing 1 to 500 of 10,000 in this order. Next")
	w.click("#paging a")
	w.shows("#paging", "Showing 501 to 1,000 of 10,000 in this order. Previous Next")
	t.Logf("10,000 semaphores: shown after %v, a change after %v, an update takes %.1f ms at most; %v updates added %v nodes", shown.Round(time.Millisecond), changed.Round(time.Millisecond), slowest, updates, added)
	w.quiet()
}

// TestOverview_NamesAreVisibleAtEveryWidth checks that the columns leave room for names, and that nothing scrolls sideways.
func TestOverview_NamesAreVisibleAtEveryWidth(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/tenant:acme:exports/leases?capacity=12&ttl=60s", "")
	w := s.window()
	w.open("/ui/")
	w.shows("#rows", "tenant:acme:exports")
	for _, width := range []int64{320, 390, 681, 700, 800, 861, 900, 1001, 1101, 1280, 1600} {
		w.do("size", chromedp.EmulateViewport(width, 800))
		w.sees(fmt.Sprintf("innerWidth === %d", width))
		if !w.is(`(() => { const name = document.querySelector("#rows .name"); return name.clientWidth >= 140 && name.scrollWidth <= name.clientWidth && document.documentElement.scrollWidth <= innerWidth })()`) {
			t.Errorf("at %d pixels the name is cut, or the page scrolls", width)
		}
		if !w.is(`["Name", "In use", "Waiting", "State"].every(text => [...document.querySelectorAll("thead a")].some(a => {
			const box = a.getBoundingClientRect();
			return a.textContent === text && box.width > 0 && document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === a;
		}))`) {
			t.Errorf("at %d pixels a link that sorts cannot be seen", width)
		}
	}
	w.quiet()
}
