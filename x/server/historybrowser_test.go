package server_test

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/x/server"
	"github.com/sema-go/sema/x/server/internal/history"
)

// pastDay fills a directory with a day of history of the semaphore db: busy and quiet hours, and
// an hour without a server.
func pastDay(t *testing.T, directory string) {
	t.Helper()
	now := time.Now()
	h, err := history.Open(directory, 0, now.Add(-24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for at := now.Add(-24 * time.Hour).Truncate(history.Fine); at.Before(now); at = at.Add(history.Fine) {
		if ago := now.Sub(at); ago > 9*time.Hour && ago < 10*time.Hour {
			continue
		}
		wave := math.Sin(2 * math.Pi * float64(at.Unix()) / 7200)
		s := history.Sample{
			InUse: int64(8 + 4*wave), Effective: 12, Waiting: int64(max(0, 40*wave-25)), Grants: 30,
			WaitP99: time.Duration(max(0, wave) * float64(4*time.Second)), HoldP50: 200 * time.Millisecond, HoldP99: time.Duration((1.5 + wave) * float64(time.Second)),
		}
		h.Record(at, map[string]history.Sample{"db": s})
	}
	h.Note(history.Event{At: now.Add(-7 * time.Minute), Semaphore: "db", Kind: "resize", By: "ops", Detail: `{"capacity":12}`})
	h.Note(history.Event{At: now.Add(-3 * time.Hour), Semaphore: "db", Kind: "drain", By: "ci"})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDashboard_HistoryInABrowser checks the ranges, the axes, the value under the pointer, the
// events, the times and the advice.
func TestDashboard_HistoryInABrowser(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	pastDay(t, directory)
	s := start(t, server.Options{History: directory, Declared: []server.Declaration{{Name: "db", Capacity: 12, TTL: 5 * time.Minute}}})
	for range 30 {
		lease := s.want(201, "POST", "/v1/semaphores/db/leases?weight=2", "")
		s.want(204, "DELETE", lease.header.Get("Location"), "")
	}
	s.want(201, "POST", "/v1/semaphores/db/leases?weight=9&holder=nightly+report", "")
	go s.send("POST", "/v1/semaphores/db/leases?weight=8&wait=1m&holder=import", "")
	w := s.window()
	_, offset := time.Now().Zone()
	elsewhere := map[bool]string{true: "Asia/Tokyo", false: "America/Lima"}[offset < 0]
	if _, err := chromedp.Call(w.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: elsewhere}); err != nil {
		t.Fatal(err)
	}
	w.do("size", chromedp.EmulateViewport(1280, 1000))
	w.open("/ui/semaphore?name=db")
	w.shows("#live", "live")
	w.shows("#times", "First needs8, 3 free")
	w.shows("#times", "Head of queue")
	w.shows("#advice", "Little's law")
	w.shows("#charts .events", "resize by ops")
	w.shows("#charts .events", "restart")
	w.sees("document.querySelectorAll('#charts svg .event').length >= 4")
	w.sees("document.querySelector('#charts .curve').getAttribute('d').length > 20")
	w.sees("document.querySelectorAll('#charts figure:first-of-type .axis span').length === 5")
	w.shows("#charts .scale", "12")

	hover := "(() => { const b = document.querySelector('#charts svg').getBoundingClientRect(); document.querySelector('#charts svg').dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: b.left + b.width / 2, clientY: b.top + 5})); return /^\\d\\d:\\d\\d:\\d\\d: \\d+$/.test(document.querySelector('#charts [data-peak]').textContent) })()"
	w.sees(hover)
	w.shows("footer", "times in "+time.Now().Format("MST"))
	w.sees(fmt.Sprintf(`(() => { const svg = document.querySelector('#charts svg'), at = (Number(svg.dataset.from) + Number(svg.dataset.to)) / 2 + %d * 1000;
		const shown = document.querySelector('#charts [data-peak]').textContent.split(': ')[0];
		const apart = Math.abs(Date.parse('1970-01-01T' + shown + 'Z') - at %% 86400e3);
		return Math.min(apart, 86400e3 - apart) < 60e3 })()`, offset)) // the zone of the axis, and not that of the browser

	screenshot(w, "15m")
	w.click("#charts .ranges a:nth-child(2)")
	w.shows("#charts .ranges [aria-current]", "1h")
	w.shows("#live", "live")
	screenshot(w, "1h")
	w.click("#charts .ranges a:nth-child(3)")
	w.shows("#charts .ranges [aria-current]", "24h")
	w.shows("#charts .events", "drain by ci")
	w.sees("(document.querySelector('#charts .curve').getAttribute('d').match(/M/g) || []).length >= 2") // the gap
	screenshot(w, "24h")
	w.shows("#live", "live")
	w.quiet()
}

// screenshot writes a picture of the page to a directory that a developer has asked for.
func screenshot(w *window, name string) {
	directory := os.Getenv("SEMA_SCREENSHOTS")
	if directory == "" {
		return
	}
	picture, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(directory+"/history-"+name+".png", picture, 0o600)
	}
	if err != nil {
		w.t.Error(err)
	}
}
