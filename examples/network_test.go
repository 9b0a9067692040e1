package examples_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/examples/internal/peak"
)

// A service counts the requests that it serves.
type service struct {
	running peak.Meter
	mu      sync.Mutex
	arrived []time.Time
	reply   func(n int, w http.ResponseWriter, r *http.Request) // n: arrivals so far
}

func startService(t *testing.T, reply func(n int, w http.ResponseWriter, r *http.Request)) (*service, string) {
	s := &service{reply: reply}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// ServeHTTP takes long enough that a client without a bound has all its requests in flight.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	s.mu.Lock()
	s.arrived = append(s.arrived, time.Now())
	n := len(s.arrived)
	s.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	s.reply(n, w, r)
}

// arrival returns when the nth request arrived, from 1.
func (s *service) arrival(n int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived[n-1]
}

// TestDownload_KeepsItsLimits: the server measures how many downloads run at once. The
// bytes cannot arrive sooner than the bandwidth admits, however fast the machine is.
func TestDownload_KeepsItsLimits(t *testing.T) {
	t.Parallel()
	program := build(t, "download")
	server, url := startService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/3") {
			http.NotFound(w, r)
			return
		}
		w.Write(make([]byte, 40_000))
	})
	const files, atOnce, bandwidth = 24, 4, 1_000_000
	args := []string{"-n", fmt.Sprint(atOnce), "-bandwidth", fmt.Sprint(bandwidth)}
	for i := range files {
		args = append(args, fmt.Sprintf("%s/%d", url, i))
	}
	p := run(t, 0, program, args...)
	p.numbers(t, ` 23 × 200 OK`)
	p.numbers(t, `  1 × 404 Not Found`)
	bytes := p.numbers(t, `(\d+) bytes`)[0]
	if most := server.running.Most(); most > atOnce || bytes < 23*40_000 {
		t.Errorf("%d downloads at once, %d bytes; want at most %d, and all bytes", most, bytes, atOnce)
	}
	if least := time.Duration(bytes-bandwidth/10) * time.Second / bandwidth; p.took < least {
		t.Errorf("%d bytes in %v, want at least %v", bytes, p.took, least)
	}
	if p := run(t, 1, program, "http://127.0.0.1:1/"); !strings.Contains(p.out, "  1 × no reply\n") {
		t.Errorf("a server that is away: %q", p.out)
	}
	p = run(t, 0, program)
	p.numbers(t, ` 36 × 200 OK`)
	if most := p.numbers(t, `40 URLs in \S+, at most (\d+) at once`)[0]; most > 8 {
		t.Errorf("%d at once, want at most 8", most)
	}
}

// TestOutbound_KeepsRateAndConcurrency: the service measures how many requests run at
// once. They cannot all arrive sooner than the rate admits.
func TestOutbound_KeepsRateAndConcurrency(t *testing.T) {
	t.Parallel()
	program := build(t, "outbound")
	server, url := startService(t, func(int, http.ResponseWriter, *http.Request) {})
	const requests, rate, atOnce = 40, 50, 3
	p := run(t, 0, program, "-requests", fmt.Sprint(requests), "-rate", fmt.Sprint(rate), "-n", fmt.Sprint(atOnce), url)
	p.numbers(t, `40 requests done, 40 attempts, at most \d at once, \S+`)
	if most := server.running.Most(); most > atOnce {
		t.Errorf("%d requests at once, want at most %d", most, atOnce)
	}
	if least := (requests - atOnce) * time.Second / rate; p.took < least {
		t.Errorf("%d requests in %v, want at least %v", requests, p.took, least)
	}
	p = run(t, 0, program)
	p.numbers(t, `60 requests done, 61 attempts, at most [1-4] at once, \S+`)
}

// TestOutbound_PausesForRetryAfter: after a 429 nothing arrives for as long as it states.
// A request that the service rejects otherwise is an error.
func TestOutbound_PausesForRetryAfter(t *testing.T) {
	t.Parallel()
	program := build(t, "outbound")
	rejected := make(chan time.Time, 1)
	server, url := startService(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 3 {
			rejected <- time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	p := run(t, 0, program, "-requests", "5", "-n", "1", url) // one at once, so that none was sent before the pause
	p.numbers(t, `5 requests done, 6 attempts, at most 1 at once, \S+`)
	if pause := server.arrival(4).Sub(<-rejected); pause < time.Second {
		t.Errorf("the next request arrived %v after Retry-After: 1", pause)
	}
	_, url = startService(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	run(t, 1, program, "-requests", "5", url)
}

// TestTenants_NoisyDoesNotStarveQuiet: the tenants are served in turn. In order of arrival,
// all 51 requests of noisy would come first. The rest has no place in the queue of noisy.
func TestTenants_NoisyDoesNotStarveQuiet(t *testing.T) {
	t.Parallel()
	p := run(t, 0, build(t, "tenants"))
	p.numbers(t, `noisy: 51 served, 49 rejected`)
	p.numbers(t, `quiet: 10 served, 0 rejected`)
	// About as many of each; more if the machine wakes a request of quiet late.
	if before := p.numbers(t, `(\d+) of noisy served before the last of quiet`)[0]; before > 30 {
		t.Errorf("%d requests of noisy served before the last of quiet", before)
	}
}

// TestDrain_CompletesRequests: after SIGTERM new requests are rejected, one in progress is
// completed, and the program ends with exit code 0.
func TestDrain_CompletesRequests(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	t.Parallel()
	program := build(t, "drain")
	job, url := startDrain(t, program)
	slow := startUpload(t, url)
	job.cmd.Process.Signal(syscall.SIGTERM)
	if line := job.line(); line != "draining: 1 requests in progress" {
		t.Errorf("printed %q", line)
	}
	for deadline := time.Now().Add(runTimeout); ; { // the drain begins after the line
		resp, err := http.Post(url, "text/plain", strings.NewReader("late"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1" {
			break
		} else if resp.StatusCode != http.StatusOK || time.Now().After(deadline) {
			t.Fatalf("status %s while draining", resp.Status)
		}
	}
	if reply := slow.finish(); reply != "200 OK: 11 bytes stored\n" {
		t.Errorf("the request in progress: %q", reply)
	}
	if line := job.line(); !strings.HasPrefix(line, "drained: ") {
		t.Errorf("printed %q", line)
	}
	if code := job.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestDrain_EndsAfterItsGrace: a request that does not end does not keep the program.
func TestDrain_EndsAfterItsGrace(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	t.Parallel()
	program := build(t, "drain")
	job, url := startDrain(t, program, "-grace", "50ms")
	slow := startUpload(t, url)
	job.cmd.Process.Signal(syscall.SIGTERM)
	if code := job.end(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	slow.finish()
	p := run(t, 0, program) // by itself
	p.numbers(t, `request 4: 503 Service Unavailable`)
	p.numbers(t, `drained: 3 requests completed, 1 rejected`)
}

func startDrain(t *testing.T, program string, args ...string) (*job, string) {
	t.Helper()
	job := startJob(t, program, append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	address, ok := strings.CutPrefix(job.line(), "listening at ")
	if !ok {
		t.Fatal("no address printed")
	}
	return job, "http://" + address
}

// An upload is a request whose body is not complete.
type upload struct {
	body  *io.PipeWriter
	reply chan string
}

// startUpload sends a request, and waits until the service reads its body: then it has its
// permit.
func startUpload(t *testing.T, url string) *upload {
	t.Helper()
	reader, writer := io.Pipe()
	u := &upload{writer, make(chan string, 1)}
	reading := make(chan struct{})
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: runTimeout}}
	t.Cleanup(client.CloseIdleConnections)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			u.reply <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		u.reply <- resp.Status + ": " + string(text)
	}()
	select {
	case <-reading:
	case reply := <-u.reply:
		t.Fatalf("the request was not accepted: %s", reply)
	}
	return u
}

// finish sends the body, and returns the reply.
func (u *upload) finish() string {
	u.body.Write([]byte("hello world"))
	u.body.Close()
	return <-u.reply
}
