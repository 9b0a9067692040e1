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
	"github.com/chromedp/chromedp"

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

// TestSite_InABrowser opens every page on a phone and on a large screen.
func TestSite_InABrowser(t *testing.T) {
	t.Parallel()
	b := openTab(t)
	site := mustRender(t)
	for _, width := range []int64{390, 1400} {
		if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1}); err != nil {
			t.Fatal(err)
		}
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
	b.do("reload", chromedp.Navigate(b.url))
	b.sees("document.documentElement.dataset.theme === 'dark'")
	b.do("menu", chromedp.Evaluate[chromedp.Void]("document.getElementById('menu').click()"))
	b.sees("document.getElementById('navigation').classList.contains('open')")
}
