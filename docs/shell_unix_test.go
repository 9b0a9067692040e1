//go:build unix

package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestShell_Runs runs the shell blocks of each page in one shell, one after the other, in an
// empty home directory, with sema in the PATH and semaphores of their own. Where a page
// shows the output of a block, it is compared. The port of `sema serve` and the address of
// Redis are those of the test.
func TestShell_Runs(t *testing.T) {
	t.Parallel()
	bash := storetest.Need(t, "bash", "bash")
	programs := buildSema(t)
	scripts := 0
	for _, p := range pages(t) {
		var blocks []*block
		for _, b := range p.blocks {
			if b.lang == "sh" && !strings.HasPrefix(b.note, prefixTested) && !strings.HasPrefix(b.note, prefixUnrun) {
				blocks = append(blocks, b)
			}
		}
		if len(blocks) == 0 {
			continue
		}
		scripts++
		t.Run(strings.ReplaceAll(p.name, "/", "."), func(t *testing.T) {
			t.Parallel()
			runPage(t, bash, programs, blocks)
		})
	}
	if scripts == 0 {
		t.Error("no page has shell blocks to run")
	}
}

// buildSema builds the command line and returns its directory.
func buildSema(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	cmd := exec.Command("go", "build", "-o", directory+"/", "./cmd/sema")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return directory
}

// pageTimeout bounds the commands of one page. It ends what hangs, also on a machine that is
// slow and busy.
const pageTimeout = 4 * time.Minute

// marker separates the output of blocks.
const marker = "@@@ block "

func runPage(t *testing.T, bash, programs string, blocks []*block) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(storetest.Port(t))
	writeFiles(t, workspace{home}, blocks[0].page)
	var script strings.Builder
	for i, b := range blocks {
		fmt.Fprintf(&script, "echo; echo '%s%d'; cd \"$HOME\"\n", marker, i)
		code := strings.ReplaceAll(b.code, "7362", port)
		if strings.Contains(code, "redis://localhost:6379") {
			code = strings.ReplaceAll(code, "redis://localhost:6379", redistest.Start(t).URL())
		}
		if strings.Contains(code, "curl ") {
			storetest.Need(t, "curl", "curl")
		}
		switch b.note {
		case noteBackground:
			fmt.Fprintf(&script, "(unset SEMA_STORE\n%s) >background.log 2>&1 &\nuntil (exec 3<>/dev/tcp/127.0.0.1/%s) 2>/dev/null; do kill -0 $! || { cat background.log; exit 1; }; sleep 0.05; done\n", code, port)
		case noteCheckout:
			fmt.Fprintf(&script, "cd \"$CHECKOUT\"\n%s", code)
		case noteFails:
			fmt.Fprintf(&script, "if (set -e\n%s); then echo 'it succeeded'; exit 1; fi\n", code)
		default:
			script.WriteString(code)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "-e", "-u", "-o", "pipefail", "-c", script.String())
	cmd.Dir = home
	cmd.Env = append(shellEnvironment(t), "HOME="+home, "PATH="+filepath.Join(home, "bin")+":"+programs+":"+os.Getenv("PATH"), "SEMA_STORE=host:"+t.TempDir(), "SEMA_LISTEN=127.0.0.1:"+port)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if kill := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); kill != nil && !errors.Is(kill, syscall.ESRCH) {
		t.Error(kill) // what runs in the background
	}
	sections := strings.Split(string(out), "\n"+marker)
	if err != nil {
		t.Fatalf("%s: %v\n%s\noutput:\n%s", blocks[max(len(sections)-2, 0)].where(), err, script.String(), out)
	}
	for i, b := range blocks {
		_, printed, _ := strings.Cut(sections[i+1], "\n")
		printed = strings.ReplaceAll(printed, port, "7362")
		if want, shown := b.output(); shown && !matches(want, printed) {
			t.Errorf("%s: printed\n%s\nwant\n%s", b.where(), printed, want)
		}
	}
}

// writeFiles writes the programs of a page that have names into the home directory, which
// becomes a module that may import the packages of the checkout.
func writeFiles(t *testing.T, home workspace, p *page) {
	t.Helper()
	initialized := false
	for _, b := range p.blocks {
		if name, found := strings.CutPrefix(b.note, prefixFile); found {
			if !initialized {
				home.initialize(t)
				initialized = true
			}
			home.write(t, name, b.code)
		}
	}
}

// shellEnvironment returns the environment of a shell whose home is empty: that of the test
// without the user's settings, with Go's caches.
func shellEnvironment(t *testing.T) []string {
	t.Helper()
	values, err := exec.Command("go", "env", "GOPATH", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(values)), "\n")
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	environment := []string{"GOPATH=" + lines[0], "GOMODCACHE=" + lines[1], "GOCACHE=" + lines[2], "CHECKOUT=" + checkout, "NO_COLOR=1", "GORACE=atexit_sleep_ms=0"}
	own := regexp.MustCompile(`^(HOME|PATH|SEMA_\w*|XDG_\w*)=`)
	for _, v := range os.Environ() {
		if !own.MatchString(v) {
			environment = append(environment, v)
		}
	}
	return environment
}
