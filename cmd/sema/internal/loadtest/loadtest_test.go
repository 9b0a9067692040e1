package loadtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

func TestMain(m *testing.M) { commandtest.Main(m, Command, redistest.Shared.End) }

// measured runs the program and parses its output.
func measured(t *testing.T, args ...string) document {
	t.Helper()
	result := commandtest.Run(t, append([]string{"bench", "--for", "1s", "-o", "json"}, args...)...)
	var d document
	if err := json.Unmarshal([]byte(result.Out), &d); err != nil || result.Code != 0 {
		t.Fatalf("%v: %+v", err, result)
	}
	return d
}

func TestBench_EveryStore(t *testing.T) {
	t.Parallel()
	server := redistest.Shared.Server(t)
	redis := server.URL() + "?prefix=bench:"
	for name, args := range map[string][]string{
		"redis":        {"--store", redis, "--callers", "8"},
		"redis pooled": {"--store", redis, "--callers", "8", "--mode", "pooled"},
		"sqlite":       {"--store", "sqlite://" + filepath.Join(t.TempDir(), "sema.db"), "--callers", "8"},
		"memory":       {"--store", "mem:", "--callers", "8", "--capacity", "2"},
		"host":         {"--store", "host:?dir=" + t.TempDir(), "--callers", "8"},
	} {
		d := measured(t, args...)
		var counted int64
		for _, c := range d.Histogram {
			counted += c.Count
		}
		if d.Pairs < 10 || d.Pairs != counted || d.PairsPerSecond < 30 || d.Callers != 8 || len(d.Errors) > 0 || d.Interrupted ||
			d.Acquire.P50 <= 0 || d.Acquire.P50 > d.Acquire.P90 || d.Acquire.P90 > d.Acquire.P99 || d.Acquire.P99 > d.Acquire.Max || d.Seconds < 0.5 { // of a second, minus the start
			t.Errorf("%s: %+v", name, d)
		}
	}
	wantNothingLeft(t, redis)
}

// wantNothingLeft fails if a semaphore is left behind.
func wantNothingLeft(t *testing.T, store string) {
	t.Helper()
	client, err := fleet.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	if names, err := client.List(t.Context(), ""); len(names) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// TestBench_WaitsForHeldPermits uses one permit that is held for 20 ms: there are at most 50 pairs a
// second, and the eighth caller waits for the seven before it.
func TestBench_WaitsForHeldPermits(t *testing.T) {
	t.Parallel()
	d := measured(t, "--store", "mem:", "--callers", "8", "--capacity", "1", "--hold", "20ms", "--for", "1s")
	if d.Pairs > 51 || d.Pairs < 10 || d.Acquire.P50 < 100_000 || d.HoldMicros != 20_000 {
		t.Errorf("%+v", d)
	}
	result := commandtest.Run(t, "bench", "--store", "mem:", "--callers", "8", "--capacity", "1", "--for", "100ms")
	if !strings.Contains(result.Out, "1 permit for 8 callers: the time includes waiting for permits.") ||
		!strings.Contains(result.Out, " pairs a second (") || !strings.Contains(result.Out, "█") || result.Err != "measuring for 100ms …\n" {
		t.Errorf("%+v", result)
	}
}

func TestBench_InterruptCleansUp(t *testing.T) {
	t.Parallel()
	for _, by := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		store := redistest.Shared.Server(t).URL() + "?prefix=interrupted:"
		cmd := commandtest.Command(t, "bench", "--store", store, "--for", "1h", "--mode", "pooled")
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		client, err := fleet.Open(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for names := []string{}; len(names) == 0; time.Sleep(time.Millisecond) {
			if names, err = client.List(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Signal(by); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(out.String()+stderr.String(), "interrupted") {
			t.Errorf("%v: code %d, %s%s", by, code, &out, &stderr)
		}
		client.Close(t.Context())
		wantNothingLeft(t, store)
	}
}

// TestBench_ReportsFailures checks that failures are reported if a store disappears during the
// measurement. On a busy machine, the measurement may end before the next acquire: then the test
// measures for longer.
func TestBench_ReportsFailures(t *testing.T) {
	t.Parallel()
	for duration := 2 * time.Second; ; duration *= 4 {
		d, code := measuredWithoutStore(t, duration)
		if code != 1 {
			t.Fatalf("code %d: %+v", code, d)
		}
		if len(d.Errors) > 0 {
			return
		}
		if duration > 30*time.Second {
			t.Fatalf("no failures in %v: %+v", duration, d)
		}
	}
}

// measuredWithoutStore runs the program, and removes its store once the measurement has started.
func measuredWithoutStore(t *testing.T, duration time.Duration) (d document, code int) {
	t.Helper()
	dir := t.TempDir()
	cmd := commandtest.Command(t, "bench", "--store", "host:?dir="+dir, "--for", duration.String(), "-o", "json", "--callers", "2")
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, "measuring for ") {
		t.Fatalf("the measurement does not start: %q, %v", line, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	cmd.Wait()
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatalf("%v: %s%s", err, &out, rest)
	}
	return d, cmd.ProcessState.ExitCode()
}

func TestBench_StoreIsUnreachable(t *testing.T) {
	t.Parallel()
	closed := storetest.Loopback(storetest.Port(t))
	for _, store := range []string{"redis://" + closed, "etcd://" + closed, "host:?dir=/nowhere"} {
		if result := commandtest.Run(t, "bench", "--store", store); result.Code != 69 || !strings.Contains(result.Err, "'sema doctor' examines the store") || result.Out != "" {
			t.Errorf("%+v", result)
		}
	}
}

func TestBench_Misuse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--mode", "pooled"}, {"--mode", "fast", "--store", "mem:"}, {"--callers", "0"}, {"--capacity", "-1"}, {"--capacity", "100000000"},
		{"--for", "0s"}, {"--hold", "-1s"}, {"-o", "yaml"}, {"more"}, {"--store", "host:?x=1"},
	} {
		if result := commandtest.Run(t, append([]string{"bench"}, args...)...); result.Code != 64 || result.Err == "" || result.Out != "" {
			t.Errorf("%q: %+v", args, result)
		}
	}
}

func TestProgress_BarOnATerminal(t *testing.T) {
	t.Parallel()
	w := commandtest.NewTerminal(t, 80, 24)
	w.Enter("$SEMA bench --store mem: --for 2s --callers 4")
	w.Await("█")
	w.AwaitThat("rate", func(screen string) bool {
		return strings.Contains(screen, "1s of 2s  ") && strings.Contains(screen, " pairs/s")
	})
	screen := w.Await("pairs a second (")
	if strings.Contains(screen, " of 2s") {
		t.Errorf("the bar is left:\n%s", screen)
	}
	w.Enter("clear")
	w.Enter("$SEMA bench --store mem: --for 1h --callers 4")
	w.Await(" of 1h0m0s")
	w.Press("C-c")
	w.Await("interrupted: these are the results until then")
	w.Enter("echo code $?")
	w.Await("code 130")
}
