package server_test

import (
	"bytes"
	"fmt"
	"html"
	"image"
	"image/color/palette"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sema-go/sema/internal/storetest"
)

// TestDashboard_WritesScreenshots writes the pictures of README: make screenshots. It runs only if SEMA_IMAGES names
// their directory.
func TestDashboard_WritesScreenshots(t *testing.T) {
	directory := os.Getenv("SEMA_IMAGES")
	if directory == "" {
		t.Skip("SEMA_IMAGES is not set; make screenshots sets it")
	}
	s := demo(t)
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1200, 720))
	w.open("/ui/semaphore?name=gpu")
	w.shows("#live", "live")
	// The charts and sparklines need some minutes of history, and a lease that is held for long. The charts by
	// client are complete only while the page is viewed.
	await := func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		held, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool](`fetch("/ui/").then(r => r.text()).then(text => text.includes("held 2m"))`, await))
		if err != nil {
			t.Fatal(err)
		}
		if held {
			break
		}
	}
	picture := func(name string) {
		t.Helper()
		raw, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			raw, err = small(raw)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, name), raw, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
		if len(raw) > 200<<10 {
			t.Errorf("%s takes %d bytes", name, len(raw))
		}
	}
	w.do("size", chromedp.EmulateViewport(1200, 1080))
	w.scheme("light")
	picture("semaphore.png")
	w.do("size", chromedp.EmulateViewport(1200, 720))
	w.open("/ui/")
	w.shows("#live", "live")
	picture("dashboard-light.png")
	w.scheme("dark")
	picture("dashboard-dark.png")
	w.scheme("light")
	w.open("/play/")
	w.click("#run")
	time.Sleep(6 * time.Second) // the lesson moves
	picture("play.png")
	if err := os.WriteFile(filepath.Join(directory, "top.svg"), s.top(t), 0o644); err != nil {
		t.Error(err)
	}
}

// small reduces a picture to 216 colours, if it takes more than 200 KB.
func small(raw []byte) ([]byte, error) {
	if len(raw) <= 200<<10 {
		return raw, nil
	}
	from, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	to := image.NewPaletted(from.Bounds(), palette.Plan9)
	draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}

// top returns the screen of `sema top`, as SVG.
func (s *site) top(t *testing.T) []byte {
	t.Helper()
	const columns, lines = 150, 36
	tmux := storetest.Need(t, "tmux", "tmux")
	socket := filepath.Join(t.TempDir(), "tmux")
	run := func(args ...string) string {
		out, err := exec.Command(tmux, append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	store := "sema://" + strings.TrimPrefix(s.url, "http://")
	run("-u", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(lines), s.program, "top", "--store", store)
	defer run("kill-server")
	time.Sleep(25 * time.Second) // one poll a second for the sparklines
	screen := strings.Split(run("-u", "capture-pane", "-p"), "\n")
	var b bytes.Buffer
	const width, height = 7.8, 17
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="ui-monospace, Menlo, 'DejaVu Sans Mono', monospace" font-size="13"><rect width="100%%" height="100%%" rx="8" fill="#161b22"/>`+"\n", columns*width+24, lines*height+24)
	for i, line := range screen {
		line = strings.ReplaceAll(line, "127.0.0.1", "localhost")
		fmt.Fprintf(&b, `<text x="12" y="%d" fill="#e7ebf1" xml:space="preserve">%s</text>`+"\n", 12+(i+1)*height-4, html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
