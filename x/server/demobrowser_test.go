package server_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// demo builds sema, starts `sema serve --demo` and returns its site. The program is ended when the
// test ends.
func demo(t *testing.T) *site {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sema")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/sema-go/sema/cmd/sema").CombinedOutput(); err != nil {
		t.Fatalf("build sema: %v\n%s", err, out)
	}
	c := exec.Command(program, "serve", "--demo", "--listen", "127.0.0.1:0", "--grace", "1s")
	c.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	log := &logBuffer{}
	c.Stderr = log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		killer := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		defer killer.Stop()
		if err := c.Wait(); err != nil {
			t.Errorf("sema serve --demo: %v\n%s", err, log)
		}
	})
	s := &site{t: t, log: log, program: program}
	for lines := bufio.NewScanner(out); s.url == "" && lines.Scan(); {
		if found := regexp.MustCompile(`(http://\S+)/ui/`).FindStringSubmatch(lines.Text()); found != nil {
			s.url = found[1]
		}
	}
	if s.url == "" {
		t.Fatalf("no address was announced: %s", log)
	}
	return s
}

// TestDemo_IsAliveWithinSeconds checks that a newcomer sees a living system soon, clearly marked as
// a demonstration.
func TestDemo_IsAliveWithinSeconds(t *testing.T) {
	t.Parallel()
	s := demo(t)
	started := time.Now()
	w := s.window()
	w.do("size", chromedp.EmulateViewport(1280, 900))
	w.open("/ui/")
	w.sees("document.querySelectorAll('#rows tr').length >= 12")
	w.shows(".demo", "This server drives traffic of its own.")
	w.sees("[...document.querySelectorAll('#rows .figures b')].filter(b => b.textContent !== '0').length >= 6")
	w.sees("[...document.querySelectorAll('#rows .waiting b')].length >= 1")
	w.is("window.first = document.querySelector('#rows').textContent")
	w.sees("document.querySelector('#rows').textContent !== window.first") // it moves
	t.Logf("alive %v after the start", time.Since(started).Round(time.Millisecond))
	w.sees("Number(document.querySelector('.totals dd').textContent.replace('/s', '')) > 5") // after the first sample
	t.Logf("measured %v after the start", time.Since(started).Round(time.Millisecond))
	w.sees("Number(document.querySelectorAll('.totals dd')[2].textContent.replace('/s', '')) > 0") // some are rejected
	w.accessible()
	w.picture("demo")
	w.open("/ui/semaphore?name=gpu")
	w.shows("#holdings", "inference")
	w.sees("document.querySelectorAll('#usage figure:first-child path[data-name]').length >= 2") // clients, stacked
	w.accessible()
	w.open("/ui/semaphore?name=api%2Fsearch")
	w.shows("#holdings", "web-2")
	w.sees("document.querySelectorAll('#usage path[data-name^=web]').length > 0")
	w.sees("document.querySelector('#heat path[d^=M]')")
	w.quiet()
}
