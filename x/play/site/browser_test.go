package site_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"github.com/sema-go/sema/x/play"
	"github.com/sema-go/sema/x/play/site"
)

// builtOnce returns a directory with the files of the site, built from the present source.
var builtOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sema-play-site-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a busy machine with an empty cache
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "run", "github.com/sema-go/sema/x/play/build", "-site", "-to", dir).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the site: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := builtOnce(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// A tab is a browser with the playground open. It fails the test if there are messages on the
// console, or if a request is for another host.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string
}

func openTab(t *testing.T, url string) *tab {
	t.Helper()
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
			if !strings.HasPrefix(r.Request.URL, url) && !strings.HasPrefix(r.Request.URL, "about:") {
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
	return &tab{t, ctx, url}
}

func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *tab) is(condition string) bool {
	ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
	return err == nil && ok
}

func (b *tab) sees(condition string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !b.is(condition); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("timeout waiting until %s:\n%s", condition, text)
		}
	}
}

// shows waits until a step of the lesson contains a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.sees(fmt.Sprintf("document.querySelector('#steps').textContent.includes(%q)", text))
}

// serve serves the site as sema serve does.
func serve(t *testing.T) string {
	t.Helper()
	dir, err := builtOnce()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/play/", http.StripPrefix("/play", site.Handler(os.DirFS(dir))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/play/"
}

// TestPlayground_RunsEveryLessonInABrowser waits in each lesson for a step that only the real
// packages can lead to. The clock runs four times as fast.
func TestPlayground_RunsEveryLessonInABrowser(t *testing.T) {
	t.Parallel()
	b := openTab(t, serve(t))
	b.do("open", chromedp.Navigate(b.url))
	b.sees("document.querySelectorAll('#lessons a').length === 7")
	b.do("speed", chromedp.Evaluate[chromedp.Void]("document.querySelector('#speeds input[value=\"4\"]').click()"))
	for _, c := range []struct{ address, text string }{
		{"semaphore", "and now holds a permit"},
		{"semaphore&order=unfair&weights=ones", "overtakes the queue"},
		{"semaphore&order=lifo", "LIFO serves the newest waiter first"},
		{"semaphore&order=classes", "Its class had used the least of its share"},
		{"buffer", "for an empty slot"},
		{"buffer&speed=consumers", "receives item"},
		{"readers&policy=fair", "for the lock"},
		{"readers&policy=readers", "Starvation"},
		{"readers&policy=writers", "Starvation"},
		{"table&strategy=Naive", "Diagnose(sema.DiagnoseFull) has found it"},
		{"table&strategy=LowerFirst", "has both forks"},
		{"table&strategy=OneLeftHanded", "has both forks"},
		{"table&strategy=Arbiter", "has both forks"},
		{"table&strategy=BothOrNone", "has both forks"},
		{"inversion", "The tiers were inverted"},
		{"inversion&inheritance=on", "inherited the tier"},
		{"rate", "and spends a token"},
		{"rate&refund=yes", "Settle refunds the rest"},
		{"lease&guard=on", "Rejected: fence"},
		{"lease&guard=off", "Lost update"},
	} {
		b.do(c.address, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector('#steps').replaceChildren(), location.hash = %q", c.address)))
		b.shows(c.text)
		b.sees("document.querySelectorAll('#stage .dot').length > 0 && document.querySelectorAll('#history rect').length > 0 && document.querySelector('#caption').textContent && document.querySelector('#code').textContent.length > 100")
		if strings.HasPrefix(c.address, "table&") && c.address != "table&strategy=Naive" {
			// Enough meals that neighbours have acquired their forks in every order that the strategy allows.
			b.sees(`[...document.querySelectorAll("#steps li")].filter(li => li.textContent.includes("has both forks")).length >= 8`)
		}
		shown := b.is("!document.querySelector('#report-card').hidden")
		switch suspected := shown && b.is("document.querySelector('#report').textContent.includes('deadlock suspected')"); c.address {
		case "table&strategy=Naive":
			if !suspected {
				t.Errorf("%s: no deadlock is reported", c.address)
			}
		default:
			if shown {
				t.Errorf("%s: a report is shown", c.address)
			}
		}
	}
}

// TestPlayground_CaptionsCanBeRead checks that a caption that teaches stays for long enough although
// the lesson runs four times as fast, and that it makes way for the next one that teaches.
func TestPlayground_CaptionsCanBeRead(t *testing.T) {
	t.Parallel()
	b := openTab(t, serve(t))
	b.do("open", chromedp.Navigate(b.url+"#inversion"))
	b.sees("document.querySelectorAll('#lessons a').length === 7")
	b.do("speed", chromedp.Evaluate[chromedp.Void](`document.querySelector('#speeds input[value="4"]').click(),
		window.captions = [], new MutationObserver(() => captions.push([performance.now(), document.querySelector("#caption").textContent])).observe(document.querySelector("#caption"), {childList: true})`))
	b.sees(`captions.some(c => c[1].includes("The tiers were inverted"))`)
	b.sees(`captions.findIndex(c => c[1].includes("The tiers were inverted")) < captions.length - 1`)
	short, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(() => {
		const teaches = text => /^Low acquires the lock|^High needs|inverted/.test(text);
		return captions.slice(1).map(([at, text], i) => {
			const [before, old] = captions[i];
			return teaches(old) && !teaches(text) && at - before < 3000 ? old + " for " + (at - before) + " ms, then " + text : "";
		}).filter(Boolean).join("\n");
	})()`))
	if err != nil || short != "" {
		t.Errorf("%v\n%s", err, short)
	}
}

// TestPlayground_FitsAPhone checks that the page does not scroll sideways, and that the open lesson is
// visible in the navigation, which does.
func TestPlayground_FitsAPhone(t *testing.T) {
	t.Parallel()
	b := openTab(t, serve(t))
	b.do("open", chromedp.EmulateViewport(390, 844), chromedp.Navigate(b.url))
	b.sees("document.querySelectorAll('#lessons a').length === 7")
	for _, l := range play.Lessons() {
		b.do(l.ID, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", l.ID)))
		b.sees(fmt.Sprintf("document.querySelector('#lessons [aria-current]').hash === '#%s'", l.ID))
		b.sees("(() => { const box = document.querySelector('#lessons [aria-current]').getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth })()")
		b.sees("document.documentElement.scrollWidth <= innerWidth && scrollY === 0")
	}
	b.sees("document.querySelector('#code').getBoundingClientRect().top > document.querySelector('#steps').getBoundingClientRect().bottom") // code is last
	b.do("wide", chromedp.EmulateViewport(1280, 900))
	b.sees("document.querySelector('#code').getBoundingClientRect().width > 600") // the wide column, since lines of code are long
	b.do("phone", chromedp.EmulateViewport(390, 844))
	b.do("deadlock", chromedp.Evaluate[chromedp.Void]("location.hash = 'table&strategy=Naive'"))
	b.sees("document.querySelector('#report').textContent.includes('deadlock suspected') && document.querySelector('#report').scrollWidth <= document.querySelector('#report').clientWidth") // its lines wrap
}

// TestPlayground_PausesStepsAndTakesCommands checks that the clock of the program stops.
func TestPlayground_PausesStepsAndTakesCommands(t *testing.T) {
	t.Parallel()
	b := openTab(t, serve(t))
	b.do("open", chromedp.EmulateViewport(1300, 1000), chromedp.Navigate(b.url+"#semaphore"))
	b.shows("asks for a permit")
	// The mouse presses buttons while the page rests; scripts press them while it is animated.
	press := func(css string) {
		b.t.Helper()
		b.do("press "+css, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", css)))
	}
	click := func(css string) { b.t.Helper(); b.do("click "+css, chromedp.Click(chromedp.CSS(css))) }
	click("#run")
	b.sees("document.querySelector('#run').textContent.trim() === 'Run' && !document.querySelector('#step').disabled")
	text := func(css string) string {
		text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q).textContent", css)))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	at := func() string { return text("#steps") }
	// A tick that was under way may still arrive: wait until the clock has stood for a second.
	before := text("#clock")
	for deadline, since := time.Now().Add(time.Minute), time.Now(); time.Since(since) < time.Second; time.Sleep(50 * time.Millisecond) {
		if now := text("#clock"); now != before {
			before, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("the lesson goes on while it is paused")
		}
	}
	for range 3 {
		caption := at()
		click("#step")
		b.sees(fmt.Sprintf("document.querySelector('#steps').textContent !== %q", caption))
	}
	b.do("leave the button", chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
	caption := at()
	b.do("the right arrow", chromedp.KeyEvent("\u0303"))
	b.sees(fmt.Sprintf("document.querySelector('#steps').textContent !== %q", caption))
	b.do("space", chromedp.KeyEvent(" "))
	b.sees("document.body.classList.contains('running')")
	workers, err := chromedp.Run(b.ctx, chromedp.Evaluate[int]("document.querySelectorAll('#stage .dot').length"))
	if err != nil {
		t.Fatal(err)
	}
	press("#commands form:nth-child(1) > button")
	b.sees(fmt.Sprintf("document.querySelectorAll('#stage .dot').length === %d", workers+1))
	press("#commands form:nth-child(2) > button")
	b.sees(fmt.Sprintf("document.querySelectorAll('#stage .dot').length === %d", workers))
	press("#commands form:nth-child(3) > button")
	b.shows("Resized to 3")
	press("[data-choice=permits] button:last-child")
	b.sees("location.hash === '#semaphore&permits=4' && document.querySelector('#stage').textContent.includes('of 4 in use')")
}

// TestPlayground_IsAccessible checks every lesson with axe, in light and dark.
func TestPlayground_IsAccessible(t *testing.T) {
	t.Parallel()
	b := openTab(t, serve(t))
	for _, l := range play.Lessons() {
		b.do("open", chromedp.Navigate(b.url+"?axe="+l.ID+"#"+l.ID))
		b.sees("document.querySelector('h1')?.checkVisibility() && document.querySelector('h1').textContent.trim()") // the lesson has been loaded
		for _, scheme := range []string{"light", "dark"} {
			if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
				t.Fatal(err)
			}
			b.do("load axe", chromedp.Evaluate[chromedp.Void](axe.Script()+"\n;0"))
			found, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](axe.Violations, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
			if err != nil || found != "" {
				t.Errorf("%s, %s: %v\n%s", l.ID, scheme, err, found)
			}
		}
	}
}

// TestPlayground_IsAStaticSite serves the files by a server that knows nothing of them, below
// another path, and checks that the page is usable on a phone and by assistive software.
func TestPlayground_IsAStaticSite(t *testing.T) {
	t.Parallel()
	dir, err := builtOnce()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/docs/latest/demo/", http.StripPrefix("/docs/latest/demo/", http.FileServerFS(os.DirFS(dir))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := openTab(t, server.URL+"/docs/latest/demo/")
	b.do("phone", chromedp.EmulateViewport(360, 740), chromedp.Navigate(b.url))
	for _, l := range play.Lessons() {
		b.do(l.ID, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", l.ID)))
		b.sees(fmt.Sprintf("document.querySelector('#title').textContent === %q && document.querySelectorAll('#steps li').length > 2", l.Title))
		if b.is("document.documentElement.scrollWidth > innerWidth") {
			t.Errorf("%s: wider than a phone", l.ID)
		}
		var unnamed []string
		names, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](unnamedControls))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(names), &unnamed); err != nil || len(unnamed) > 0 {
			t.Errorf("%s: controls without a name, or IDs used twice: %v %v", l.ID, unnamed, err)
		}
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
		t.Fatal(err)
	}
	b.do("again", chromedp.Navigate(b.url+"?still#rate"))
	b.sees("document.querySelector('#title').textContent === 'Token bucket' && document.querySelector('#run').textContent.trim() === 'Run'")
}

// unnamedControls lists controls that assistive software cannot name, and repeated IDs.
const unnamedControls = `JSON.stringify([
	...[...document.querySelectorAll('button, select, input, pre[tabindex], ol[tabindex], svg[role=img]')].filter((e) => e.checkVisibility() &&
		!(e.textContent.trim() || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length)).map((e) => e.outerHTML),
	...[...document.querySelectorAll('[id]')].filter((e) => document.querySelectorAll('#' + e.id).length > 1).map((e) => e.id)])`

// TestPlayground_WithoutItsProgram states what is missing.
func TestPlayground_WithoutItsProgram(t *testing.T) {
	t.Parallel()
	handler := site.Handler(os.DirFS(t.TempDir()))
	for path, status := range map[string]int{"/": 200, "/play.js": 200, "/wasm_exec.js": 404, "/play.wasm.gz": 404, "/about.txt": 404, "/../site.go": 404} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "http://host"+path, nil))
		if w.Code != status {
			t.Errorf("GET %s: %d, want %d", path, w.Code, status)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe-inline") || strings.Contains(csp, " 'unsafe-eval'") {
			t.Errorf("GET %s: policy %q", path, csp)
		}
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestBuild_IsReproducible builds twice and compares, and bounds the size.
func TestBuild_IsReproducible(t *testing.T) {
	t.Parallel()
	first, err := builtOnce()
	if err != nil {
		t.Fatal(err)
	}
	second := t.TempDir()
	if out, err := exec.Command("go", "run", "github.com/sema-go/sema/x/play/build", "-to", second).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{site.Program, "wasm_exec.js"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s differs between two builds", name)
		}
		if len(a) > 2_500_000 {
			t.Errorf("%s has %d bytes, want at most 2.5 MB", name, len(a))
		}
	}
}
