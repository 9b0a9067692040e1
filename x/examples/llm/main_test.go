package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest/redistest"
	"github.com/sema-go/sema/internal/upstreamtest"
)

// program is the path of the binary, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llm")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "llm")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if err := redistest.Shared.End(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A process is a running program.
type process struct {
	cmd   *exec.Cmd
	lines chan string // that it has printed
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{exec.CommandContext(t.Context(), program, args...), make(chan string, 10_000)}
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		io.Copy(io.Discard, out)
	}()
	return p
}

// until waits for a line that contains a text.
func (p *process) until(t *testing.T, text string) {
	t.Helper()
	limit := time.After(3 * time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("ended without printing %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-limit:
			t.Fatalf("has not printed %q in three minutes", text)
		}
	}
}

// end waits until the program has ended.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.until(t, "done: ")
	for range p.lines {
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestLLM_ProcessesShareTheBudgets runs three processes against one upstream, which must see
// no violation, at 90 % of its limits or more.
func TestLLM_ProcessesShareTheBudgets(t *testing.T) {
	t.Parallel()
	const window, measured = 8 * time.Second, 24 * time.Second
	u := upstreamtest.New(upstreamtest.Limits{Window: window, Requests: 400, Tokens: 64_000, AtOnce: 10, Least: 20 * time.Millisecond, Most: 150 * time.Millisecond})
	server := httptest.NewServer(u)
	defer server.Close()
	url := redistest.Shared.Server(t).URL()
	var all []*process
	for range 3 {
		all = append(all, start(t, "-requests", "400", "-tokens", "64000", "-window", window.String(), "-n", "10", "-workers", "5", "-for", "30s", url, server.URL))
	}
	awaitServed(t, u, 1)
	time.Sleep(measured)
	use := u.Use(measured)
	for _, p := range all {
		p.end(t)
	}
	requests, tokens := u.Served()
	t.Logf("%.1f %% of the limits used, %d requests, %d tokens", 100*use, requests, tokens)
	if use < 0.9 {
		t.Errorf("%.1f %% of the limits used, want 90 %%", 100*use)
	}
	for _, v := range u.Violations() {
		t.Error(v)
	}
}

// awaitServed waits until the upstream has served so many requests.
func awaitServed(t *testing.T, u *upstreamtest.Upstream, want int64) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n, _ := u.Served()
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests served, want %d", n, want)
		}
	}
}

// TestLLM_GoesOnWithoutTheStore stops and starts Redis. Meanwhile the processes use budgets of
// their own, which are bounded: the upstream, whose limits are twice the budgets, sees no
// violation at any time.
func TestLLM_GoesOnWithoutTheStore(t *testing.T) {
	t.Parallel()
	const window, budget = 2 * time.Second, 15_000
	u := upstreamtest.New(upstreamtest.Limits{Window: window, Requests: 400, Tokens: 2 * budget, AtOnce: 20, Least: 10 * time.Millisecond, Most: 50 * time.Millisecond})
	server := httptest.NewServer(u)
	defer server.Close()
	redis := redistest.Start(t, "--appendonly", "yes")
	var all []*process
	for range 3 {
		all = append(all, start(t, "-requests", "200", "-tokens", fmt.Sprint(budget), "-window", window.String(), "-n", "10", "-workers", "5",
			"-for", "45s", "-report", "200ms", redis.URL(), server.URL))
	}
	for _, p := range all {
		p.until(t, "budgets of all")
	}
	awaitServed(t, u, 50)
	redis.Stop()
	for _, p := range all {
		p.until(t, "budgets of its own")
	}
	began := time.Now()
	_, before := u.Served()
	time.Sleep(3 * window)
	_, after := u.Served()
	if windows := int64(time.Since(began)/window) + 2; after == before || after-before > windows*budget {
		t.Errorf("%d tokens in %d windows without the store, want 1 to %d each", after-before, windows, budget)
	}
	redis.Restart()
	for _, p := range all {
		p.until(t, "budgets of all")
	}
	n, _ := u.Served()
	awaitServed(t, u, n+50)
	for _, p := range all {
		p.end(t)
	}
	for _, v := range u.Violations() {
		t.Error(v)
	}
}
