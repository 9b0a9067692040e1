package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/internal/axe"
	"github.com/sema-go/sema/internal/storetest"
)

// A tab is a browser with the site open. It fails the test if there are messages on the
// console, or if a request is for another host.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string
}

// openTab serves the site at a path, as sema serve does, and opens a browser.
func openTab(t *testing.T) *tab {
	t.Helper()
	site := mustRender(t)
	mux := http.NewServeMux()
	mux.Handle("/docs/", http.StripPrefix("/docs", site))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(storetest.Need(t, "chromium", "chromium")))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			t.Errorf("message on the console: %s (%s)", m, m.URL)
		}
	})
	listening.Go(func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if !strings.HasPrefix(r.Request.URL, server.URL) && !strings.HasPrefix(r.Request.URL, "about:") {
				t.Errorf("request to %s", r.Request.URL)
			}
		}
	})
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		closeTab()
		stop()
		listening.Wait()
	})
	return &tab{t, ctx, server.URL + "/docs/"}
}

func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *tab) sees(condition string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")")); err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("timeout waiting until %s:\n%s", condition, text)
		}
	}
}

// view selects the size of the screen and the colours of the system.
func (b *tab) view(width, height int64, scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}); err != nil {
		b.t.Fatal(err)
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		b.t.Fatal(err)
	}
}

// open opens a page and waits for its script.
func (b *tab) open(name string) {
	b.t.Helper()
	b.do("open "+name, chromedp.Navigate(b.url+name))
	b.sees("document.querySelector('article h1') && document.body.classList.contains('scripted')")
}

// text returns the value of an expression.
func (b *tab) text(expression string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// accessible fails the test if axe finds a violation in the page as it is.
func (b *tab) accessible(what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](axe.Script()+"\n;0")); err != nil {
		b.t.Fatal(err)
	}
	violations, err := chromedp.Run(ctx, chromedp.Evaluate[string](axe.Violations, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.t.Fatalf("%s: axe: %v", what, err)
	}
	if violations != "" {
		b.t.Errorf("%s:\n%s", what, violations)
	}
}

// TestSite_InABrowser opens every page on a phone and on a large screen.
func TestSite_InABrowser(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	site := mustRender(t)
	for _, width := range []int64{390, 1400} {
		b.view(width, 900, "light")
		for _, name := range site.Paths() {
			if !strings.HasSuffix(name, ".html") {
				continue
			}
			b.do("open "+name, chromedp.Navigate(b.url+strings.TrimSuffix(name, "index.html")))
			b.sees("document.querySelector('article h1') && document.body.classList.contains('scripted')")
			b.sees(fmt.Sprintf("document.documentElement.scrollWidth <= %d", width)) // the page does not scroll sideways
			b.sees("document.querySelectorAll('#navigation [aria-current=page]').length <= 1")
		}
	}
}

// TestSite_IsAccessibleInABrowser runs axe on pages of each kind, with the search open and closed.
func TestSite_IsAccessibleInABrowser(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	for _, view := range []struct {
		width  int64
		scheme string
	}{{1400, "light"}, {1400, "dark"}, {390, "light"}, {390, "dark"}} {
		b.view(view.width, 900, view.scheme)
		for _, name := range []string{"", "cli.html", "benchmarks.html", "http-api.html", "playground.html", "concepts.html", "learn/"} {
			b.open(name)
			what := fmt.Sprintf("%q, %d pixels, %s", name, view.width, view.scheme)
			b.accessible(what)
			if name == "" {
				b.do("search", chromedp.SendKeys(chromedp.CSS("#query"), "permit"))
				b.sees("document.querySelectorAll('#found a').length > 3")
				b.accessible(what + ", with the search open")
				b.do("close the search", chromedp.Evaluate[chromedp.Void]("document.getElementById('found').hidden = true"))
			}
			if view.width < 1000 && name == "" {
				b.do("open the menu", chromedp.Evaluate[chromedp.Void]("document.getElementById('menu').click()"))
				b.accessible(what + ", with the menu open")
			}
		}
	}
}

// TestSite_FitsAPhone checks what a phone shows of a page before it is scrolled: a header of one
// row, the contents, and copy buttons without a mouse. A table of figures, or of many columns,
// that is scrolled keeps its names in view, and a chart has text of at least 9 pixels. Drawings need no scrolling on a
// large screen.
func TestSite_FitsAPhone(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	const contents = "document.querySelector('.contents details')"
	for _, width := range []int64{320, 390} {
		b.view(width, 800, "light")
		b.open("concepts.html")
		b.sees("document.querySelector('.top').offsetHeight <= 60")
		b.sees("!" + contents + ".open && document.querySelector('.contents summary').getBoundingClientRect().bottom < 300")
		b.do("open the contents", chromedp.Evaluate[chromedp.Void]("document.querySelector('.contents summary').click()"))
		b.sees("document.querySelector('.contents a').checkVisibility()")
		b.do("go to a heading", chromedp.Evaluate[chromedp.Void]("document.querySelector('.contents a').click()"))
		b.sees("!" + contents + ".open && location.hash")
		b.do("open the menu", chromedp.Evaluate[chromedp.Void]("scrollTo(0, 900), document.getElementById('menu').click()"))
		b.sees("document.elementFromPoint(100, 400).closest('#navigation') && document.elementFromPoint(30, 90).closest('.places, #navigation')")

		for _, name := range []string{"benchmarks.html", "comparison.html"} {
			b.open(name)
			b.do("scroll the tables", chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('.table').forEach(t => t.scrollLeft = t.scrollWidth)"))
			b.sees("[...document.querySelectorAll('.table')].some(t => t.scrollLeft > 100)")
			b.sees(fmt.Sprintf("[...document.querySelectorAll('.table:has(td[align=right], td:nth-child(5)) :is(td:first-child, th > span)')].every(c => c.getBoundingClientRect().left >= 0 && c.getBoundingClientRect().right <= %d)", width))
		}
		b.open("growth.html")
		b.sees("document.querySelectorAll('.text img').length > 10 && [...document.querySelectorAll('.text img')].every(i => i.clientWidth * 12 / 772 > 9 && i.parentElement.tabIndex === 0)")
	}
	for _, width := range []int64{1280, 1100, 900} {
		b.view(width, 800, "light")
		b.open("cli.html")
		b.sees("!" + contents + ".open && document.querySelector('.contents summary').checkVisibility()")
	}
	b.view(1400, 800, "light")
	b.open("concepts.html")
	b.sees(contents + ".open && document.querySelector('.contents a').checkVisibility()")
	b.sees("[...document.querySelectorAll('[class*=fit] pre')].length > 3 && [...document.querySelectorAll('[class*=fit] pre')].every(p => p.scrollWidth <= p.clientWidth)")
	// A browser without a screen has no mouse, like a phone.
	b.sees("matchMedia('(hover: none)').matches && [...document.querySelectorAll('.copy')].every(c => getComputedStyle(c).opacity === '1')")
}

// TestSite_FindsWhatReadersSearch checks the first results of searches, and the excerpt.
func TestSite_FindsWhatReadersSearch(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	b.view(1400, 900, "light")
	b.open("learn/")
	for query, want := range map[string]string{
		"install":             "#install",
		"MaxWait":             "symbols.html#sema.MaxWait",
		"sema.AcquireAll":     "symbols.html#sema.AcquireAll",
		"TryAcquire()":        "TryAcquire",
		"fleet.TTL":           "symbols.html#fleet.TTL",
		"redisstore":          "symbols.html#x/redisstore",
		"Semaphore.Acquire":   "symbols.html#sema.Semaphore.Acquire",
		"cron":                "how-to/cron-singleton.html",
		"kubernetes":          "how-to/kubernetes-job.html",
		"graceful shutdown":   "how-to/graceful-shutdown.html",
		"glossary":            "concepts.html#glossary",
		"exit codes":          "cli.html#exit",
		"thundering herd":     "learn/",
		"dining philosophers": "learn/",
		"errgroup":            "migrating.html",
		"postgresql":          "#postgresql",
		"playground":          "playground.html",
		"getting started":     "getting-started.html",
		"priority inversion":  "wfq.html#priority-inversion",
		"backup":              "operations.html",
	} {
		b.do("search", chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector('#found').replaceChildren(), document.querySelector('#query').value = %q, document.querySelector('#query').dispatchEvent(new Event('input'))", query)))
		b.sees("document.querySelector('#found a, #found p')")
		first := b.text("document.querySelector('#found a')?.getAttribute('href') ?? ''")
		if !strings.Contains(first, want) {
			t.Errorf("%q leads to %s first, want %s; all: %s", query, first, want, b.text("[...document.querySelectorAll('#found a')].map(a => a.getAttribute('href')).join(' ')"))
		}
		if excerpt := b.text("document.querySelector('#found a span')?.textContent ?? ''"); len(excerpt) > 260 {
			t.Errorf("%q: excerpt of %d bytes: %s", query, len(excerpt), excerpt)
		}
	}
	b.sees("/^[0-9]+ results?$/.test(document.querySelector('#count').textContent)")
}

func TestSite_SearchThemeAndMenuInABrowser(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	b.do("open", chromedp.Navigate(b.url+"learn/"))
	b.sees("document.body.classList.contains('scripted')")
	b.do("search", chromedp.SendKeys(chromedp.CSS("#query"), "thundering herd"))
	b.sees("document.querySelectorAll('#found a').length > 0")
	b.sees("document.querySelector('#found mark')")
	b.do("follow", chromedp.Evaluate[chromedp.Void]("document.querySelector('#found a').click()"))
	b.sees("!location.pathname.endsWith('/learn/') || location.hash")
	b.sees("document.querySelector('article h1')")
	b.do("search for nothing", chromedp.SendKeys(chromedp.CSS("#query"), "xyzzyx"))
	b.sees("document.querySelector('#found p')?.textContent.includes('No page contains')")
	b.do("change the theme", chromedp.Evaluate[chromedp.Void]("document.getElementById('theme').click()"))
	b.sees("document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.body).backgroundColor === 'rgb(14, 17, 22)'")
	b.open("benchmarks.html")
	b.sees("document.querySelector('img[src$=\"goodput.svg\"]') && getComputedStyle(document.querySelector('img[src$=\"goodput.svg\"]')).backgroundColor === 'rgba(0, 0, 0, 0)'")
	b.do("reload", chromedp.Navigate(b.url))
	b.sees("document.documentElement.dataset.theme === 'dark'")
	b.do("copy", chromedp.Evaluate[chromedp.Void]("document.querySelector('.copy').click()"))
	b.sees("document.querySelector('.copy').textContent === 'Copied'")
	b.do("menu", chromedp.Evaluate[chromedp.Void]("document.getElementById('menu').click()"))
	b.sees("document.getElementById('navigation').classList.contains('open')")
}
