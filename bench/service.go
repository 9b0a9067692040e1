package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

func init() {
	suites["service"] = serviceScenarios
	roles["bare-http"] = bareRole
}

// A serviceBench measures the real program, which is built once, with load from
// this process.
type serviceBench struct {
	program func() string
	client  *http.Client
}

const (
	serviceConnections = 64
	serviceRequests    = 20_000
	serviceWaiting     = 10_000
)

// serviceScenarios returns the scenarios for `sema serve`, on the same cores as
// its clients.
func serviceScenarios() []scenario {
	b := &serviceBench{
		program: once(buildSema),
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: serviceConnections, DisableCompression: true}},
	}
	megabytes := func(r row) float64 { return r.Count }
	return []scenario{
		{
			name:  "service-json",
			about: fmt.Sprintf("requests over %d persistent HTTP/1.1 connections, an acquire and its release in turn, permits in a file", serviceConnections),
			impls: []impl{{"sema serve", b.json}, {"sema serve, in memory", b.jsonInMemory}, {"net/http handler that does nothing", b.bare}},
			targets: []target{
				{impl: "sema serve", rival: "net/http handler that does nothing", limit: 1 / 0.6},
				{impl: "sema serve, in memory", rival: "net/http handler that does nothing", limit: 1 / 0.6},
			},
		},
		{
			name:    "service-remote",
			about:   "256 goroutines of a Go program acquire + release one semaphore through the service, permits in a file",
			impls:   []impl{{"sema/fleet, through sema serve", b.remote}, {"sema/fleet, through sema serve in memory", b.remoteInMemory}},
			targets: []target{{impl: "sema/fleet, through sema serve", limit: 1e6 / 25_000, value: func(r row) float64 { return r.NsOp / 1e3 }, unit: "µs a pair"}},
		},
		{
			name:    "service-start",
			about:   "from the start of the program to its first response",
			impls:   []impl{{"sema serve", b.start}},
			targets: []target{{impl: "sema serve", limit: 300, value: func(r row) float64 { return r.NsOp / 1e6 }, unit: "ms"}},
		},
		{
			name:    "service-idle",
			about:   "memory of a server that has served a request",
			impls:   []impl{{"sema serve", b.idle}},
			targets: []target{{impl: "sema serve", limit: 40, value: megabytes, unit: "MB"}},
		},
		{
			name:    "service-waiting",
			about:   "10,000 clients wait, each over its own connection, and are served one after the other",
			impls:   []impl{{"sema serve", b.waiting}},
			targets: []target{{impl: "sema serve", limit: 1000, value: megabytes, unit: "MB"}},
		},
	}
}

func buildSema(s *storetest.Scope) string {
	directory, err := os.MkdirTemp("", "sema-bench")
	must(err)
	s.Cleanup(func() { os.RemoveAll(directory) })
	program := filepath.Join(directory, "sema")
	out, err := exec.Command("go", "build", "-o", program, "github.com/sema-go/sema/cmd/sema").CombinedOutput()
	if err != nil {
		s.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// A serverProcess is a running server.
type serverProcess struct {
	*exec.Cmd
	url string
}

// serve starts the program and waits until it prints its URL.
func (b *serviceBench) serve(args ...string) *serverProcess {
	directory, err := os.MkdirTemp("", "sema-bench")
	must(err)
	r := &serverProcess{Cmd: exec.Command(b.program(), append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	r.Env = append(os.Environ(), "XDG_STATE_HOME="+directory)
	r.startServer()
	scope.Cleanup(func() { r.stop(); os.RemoveAll(directory) })
	return r
}

func (r *serverProcess) startServer() {
	out, err := r.StdoutPipe()
	must(err)
	must(r.Start())
	lines := bufio.NewScanner(out)
	for r.url == "" && lines.Scan() {
		r.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

func (r *serverProcess) stop() {
	_ = r.Process.Kill()
	_ = r.Wait()
}

// megabytes returns the resident memory of the process.
func (r *serverProcess) megabytes() float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Process.Pid))
	must(err)
	_, rest, _ := strings.Cut(string(raw), "VmRSS:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	must(err)
	return kilobytes / 1024
}

func (b *serviceBench) do(method, url string) []byte {
	request, err := http.NewRequest(method, url, nil)
	must(err)
	response, err := b.client.Do(request)
	must(err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	must(err)
	return raw
}

func (b *serviceBench) json() sample         { return b.jsonOf() }
func (b *serviceBench) jsonInMemory() sample { return b.jsonOf("--store", "mem:") }

func (b *serviceBench) jsonOf(args ...string) sample {
	r := b.serve(args...)
	defer r.stop()
	at := r.url + "/v1/semaphores/bench/leases"
	b.do("POST", at+"?capacity=1000")
	return concurrently(serviceConnections, serviceRequests/serviceConnections/2, func(int) {
		var lease struct{ ID string }
		must(json.Unmarshal(b.do("POST", at), &lease))
		b.do("DELETE", at+"/"+lease.ID)
	}).times(2)
}

func (b *serviceBench) remote() sample         { return b.remoteOf() }
func (b *serviceBench) remoteInMemory() sample { return b.remoteOf("--store", "mem:") }

func (b *serviceBench) remoteOf(args ...string) sample {
	r := b.serve(args...)
	defer r.stop()
	store := storeBench{url: func() string { return strings.Replace(r.url, "http:", "sema:", 1) }}
	return store.pairs(256, 100)()
}

// times returns the sample with n operations for each one counted.
func (s sample) times(n int) sample {
	s.ops *= n
	return s
}

// bareRole runs a server that does nothing and replies with as many bytes as a
// lease has.
func bareRole([]string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println("http://" + listener.Addr().String())
	body := bytes.Repeat([]byte("x"), 180)
	must(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })))
}

func (b *serviceBench) bare() sample {
	self, err := os.Executable()
	must(err)
	r := &serverProcess{Cmd: exec.Command(self, "bare-http")}
	r.startServer()
	defer r.stop()
	return concurrently(serviceConnections, serviceRequests/serviceConnections, func(int) { b.do("POST", r.url) })
}

func (b *serviceBench) start() sample {
	b.program()
	start := time.Now()
	r := b.serve()
	b.do("POST", r.url+"/v1/semaphores/bench/leases?capacity=1")
	took := time.Since(start)
	r.stop()
	return sample{ops: 1, elapsed: took}
}

func (b *serviceBench) idle() sample {
	r := b.serve()
	defer r.stop()
	b.do("POST", r.url+"/v1/semaphores/bench/leases?capacity=1")
	time.Sleep(time.Second)
	return sample{ops: 1, elapsed: time.Second, count: r.megabytes()}
}

// waiting lets all clients queue, and then serves them all.
func (b *serviceBench) waiting() sample {
	r := b.serve("--store", "mem:")
	defer r.stop()
	at := r.url + "/v1/semaphores/bench/leases"
	var holder struct{ ID string }
	must(json.Unmarshal(b.do("POST", at+"?capacity=1"), &holder))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var wg sync.WaitGroup
	var served atomic.Int64
	for i := range serviceWaiting {
		if i%100 == 0 {
			time.Sleep(20 * time.Millisecond) // spread the requests over time, on two cores
		}
		wg.Go(func() {
			response, err := client.Post(at+"?wait=55s", "", nil)
			must(err)
			defer response.Body.Close()
			var lease struct{ ID string }
			must(json.NewDecoder(response.Body).Decode(&lease))
			b.do("DELETE", at+"/"+lease.ID)
			served.Add(1)
		})
	}
	for {
		var status struct{ Waiting int }
		must(json.Unmarshal(b.do("GET", r.url+"/v1/semaphores/bench"), &status))
		b.do("PUT", at+"/"+holder.ID)
		if status.Waiting == serviceWaiting {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	most := r.megabytes()
	start := time.Now()
	b.do("DELETE", at+"/"+holder.ID)
	wg.Wait()
	return sample{ops: int(served.Load()), elapsed: time.Since(start), count: max(most, r.megabytes())}
}
