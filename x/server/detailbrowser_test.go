package server_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/x/server"
)

// TestSemaphorePage_InABrowser checks the bar of holders and its past, the waits by length, revoking
// several leases and those of a group at once, and the commands of an action.
func TestSemaphorePage_InABrowser(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for i := range 6 {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/db/leases?capacity=12&ttl=60s&holder=job-%d", i%3), "")
	}
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1280, 900))
	w.open("/ui/semaphore?name=db")
	w.shows("#live", "live")
	w.shows("#holdings", "job-0: 2 permits")
	w.sees("document.querySelectorAll('#holdings svg rect').length === 3")
	w.sees("document.querySelectorAll('#usage svg path[data-name]').length === 3")
	w.sees("document.querySelector('#heat svg').getAttribute('aria-label') === 'Waits of the last 15m: 6, the longest took < 1ms' || document.querySelector('#heat path[d*=M]')")
	hover := func(css string) {
		t.Helper()
		w.is(fmt.Sprintf(`(() => { const box = document.querySelector(%q).getBoundingClientRect();
			document.querySelector(%[1]q).dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: box.right - 2, clientY: box.bottom - 4})) })()`, css))
	}
	hover("#usage svg")
	w.sees("/job-0 2, job-1 2, job-2 2/.test(document.querySelector('#usage [data-peak]').textContent)")
	hover("#heat svg")
	w.sees("/[1-6] × < 1ms|0 × < 1ms/.test(document.querySelector('#heat [data-peak]').textContent)")
	w.accessible()
	w.picture("semaphore")
	w.click("#bulk button") // nothing is selected
	w.shows("dialog[open]", "Select the holders to revoke first")
	w.click("#dialog [data-close]")
	w.click("#holders tr:nth-child(1) input")
	w.click("#holders tr:nth-child(3) input")
	w.click("#bulk button")
	w.shows("dialog[open]", `Revoke 2 permits of "db", 2 holders?`)
	w.accessible()
	w.do("why", chromedp.SendKeys(chromedp.CSS("dialog #why"), "stuck"))
	w.click("dialog .danger")
	w.shows("#result", "2 holders notified")
	w.sees("document.querySelectorAll('#holders .chip.tense').length === 2")
	w.click("#holdings li:nth-child(2) .revoke") // all leases of a group
	w.shows("dialog[open]", `Revoke 2 permits of "db", 2 holders?`)
	w.shows("dialog[open]", "job-1")
	w.click("dialog .danger")
	w.shows("#result", "2 holders notified")
	w.sees("document.querySelectorAll('#holders .chip.tense').length >= 3")
	w.click("#verbs .button:first-child")
	w.click("dialog .commands summary")
	w.shows("dialog .commands", "sema drain db --wait 0 --store")
	w.accessible()
	w.picture("drain")
	// On a phone, the name of a holder is not cut.
	s.want(201, "POST", "/v1/semaphores/db/leases?ttl=60s&holder=worker-of-the-nightly-import-on-node-17", "")
	w.do("phone", chromedp.EmulateViewport(390, 844))
	w.open("/ui/semaphore?name=db")
	w.shows("#holdings", "worker-of-the-nightly-import-on-node-17")
	w.sees("[...document.querySelectorAll('.holding .holder')].every(h => h.scrollWidth <= h.clientWidth) && document.documentElement.scrollWidth <= innerWidth")
	w.quiet()
}
