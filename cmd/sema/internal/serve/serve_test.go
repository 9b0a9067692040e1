package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
	playground "github.com/sema-go/sema/x/play/site"
	"github.com/sema-go/sema/x/server"
)

const anywhere = "127.0.0.1:0"

// TestServe_AnnouncedCommandWorks checks that the announced command works when pasted.
func TestServe_AnnouncedCommandWorks(t *testing.T) {
	t.Parallel()
	storetest.Need(t, "curl", "curl")
	p := serve(t, t.TempDir(), "--listen", anywhere)
	line := regexp.MustCompile(`curl .*`).FindString(p.stdout.String())
	out, err := exec.Command("sh", "-c", line).Output()
	if err != nil || !strings.Contains(string(out), `"id"`) {
		t.Errorf("%s: %s, %v", line, out, err)
	}
}

// TestServe_AnnouncedAddressesWork opens each page that the start lines name. The playground is
// there if it was built.
func TestServe_AnnouncedAddressesWork(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere)
	pages := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^  (API|description|dashboard|documents|playground) +(\S+)$`).FindAllStringSubmatch(p.stdout.String(), -1) {
		pages[line[1]] = line[2]
		response, err := http.Get(line[2])
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: status %d", line[1], line[2], response.StatusCode)
		}
	}
	for _, want := range []string{"API", "description", "dashboard", "documents"} {
		if pages[want] == "" {
			t.Errorf("no address of the %s: %s", want, p.stdout)
		}
	}
	_, err := fs.Stat(playground.Built(), playground.Program)
	if built := err == nil; built != (pages["playground"] != "") {
		t.Errorf("the playground is built: %t, and its address is %q", built, pages["playground"])
	}
}

// TestServe_ForeignClient runs a client in another language.
func TestServe_ForeignClient(t *testing.T) {
	t.Parallel()
	python := storetest.Need(t, "python3", "python3")
	p := serve(t, t.TempDir(), "--listen", anywhere)
	script := `
import json, sys, urllib.request
base = sys.argv[1]
def call(method, path):
    return urllib.request.urlopen(urllib.request.Request(base + path, method=method))
lease = json.load(call("POST", "/v1/semaphores/py/leases?capacity=2&wait=1s"))["id"]
json.load(call("PUT", "/v1/semaphores/py/leases/" + lease))
assert call("DELETE", "/v1/semaphores/py/leases/" + lease).status == 204
try:
    call("PUT", "/v1/semaphores/py/leases/" + lease)
except urllib.error.HTTPError as e:
    print(e.code, json.load(e)["type"])
`
	out, err := exec.Command(python, "-c", script, p.url).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "410 /problems/lease-lost" {
		t.Errorf("%s, %v", out, err)
	}
}

// TestServe_KilledAndStartedAgain checks that a server that is killed and restarted has lost nothing.
func TestServe_KilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	p := serve(t, directory, "--listen", anywhere)
	first := p.want(201, "POST", "/v1/semaphores/db/leases?capacity=2")
	second := p.want(201, "POST", "/v1/semaphores/db/leases", "Idempotency-Key", "k")
	p.kill()
	p = serve(t, directory, "--listen", anywhere)
	p.want(429, "POST", "/v1/semaphores/db/leases")
	p.want(200, "PUT", first.at)
	if again := p.want(201, "POST", "/v1/semaphores/db/leases", "Idempotency-Key", "k"); again.body["id"] != second.body["id"] {
		t.Errorf("%v, was %v", again.body, second.body)
	}
	p.want(204, "DELETE", first.at)
	p.want(201, "POST", "/v1/semaphores/db/leases")
}

// TestServe_StopsGracefully checks that waiting requests are served after a signal to stop, and that
// leases stay valid.
func TestServe_StopsGracefully(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	p := serve(t, directory, "--listen", anywhere, "--ready-delay", "300ms")
	held := p.want(201, "POST", "/v1/semaphores/db/leases?capacity=1")
	var wg sync.WaitGroup
	var waited jsonReply
	wg.Go(func() { waited = p.want(201, "POST", "/v1/semaphores/db/leases?wait=30s") })
	p.waitFor("an acquire waits", func() bool { return p.want(200, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	wg.Go(func() {
		if state := p.stop(); state.ExitCode() != 0 {
			t.Errorf("%v: %s", state, p.log)
		}
	})
	p.waitFor("/readyz fails", func() bool {
		a, err := send(http.DefaultClient, "GET", p.url+"/readyz")
		return err == nil && a.status == 503
	})
	p.want(201, "POST", "/v1/semaphores/other/leases?capacity=1") // load balancers may not have noticed yet
	p.want(204, "DELETE", held.at)
	wg.Wait()
	p = serve(t, directory, "--listen", anywhere)
	p.want(200, "PUT", waited.at)
}

// TestServe_RenewsWhileStopping checks that leases are renewed and released while waiting requests
// may finish.
func TestServe_RenewsWhileStopping(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "15s")
	held := p.want(http.StatusCreated, "POST", "/v1/semaphores/db/leases?capacity=1")
	waited := make(chan jsonReply, 1)
	go func() {
		a, _ := send(http.DefaultClient, "POST", p.url+"/v1/semaphores/db/leases?wait=30s")
		waited <- a
	}()
	p.waitFor("an acquire waits", func() bool { return p.want(http.StatusOK, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitFor("new acquires are rejected", func() bool {
		a, err := send(http.DefaultClient, "POST", p.url+"/v1/semaphores/db/leases")
		return err == nil && a.status == http.StatusServiceUnavailable
	})
	p.want(http.StatusOK, "PUT", held.at)
	p.want(http.StatusNoContent, "DELETE", held.at)
	if a := <-waited; a.status != http.StatusCreated {
		t.Errorf("the waiting request got %+v", a)
	}
	<-p.done
	if !p.ProcessState.Success() {
		t.Errorf("%v: %s", p.ProcessState, p.log)
	}
}

// TestServe_EarlySignal checks that the server stops gracefully from the moment it may have been
// announced.
func TestServe_EarlySignal(t *testing.T) {
	t.Parallel()
	for range 10 {
		cmd := command(t, t.TempDir(), "serve", "--listen", anywhere)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 1))
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, &log)
		}
	}
}

// TestServe_ViewersDoNotDelayTheStop checks that dashboard pages and watchers do not delay the stop.
func TestServe_ViewersDoNotDelayTheStop(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "15s")
	dashboard := regexp.MustCompile(`dashboard +(http.*/ui/)\n`).FindStringSubmatch(p.stdout.String())
	if dashboard == nil {
		t.Fatalf("no address of the dashboard: %s", p.stdout)
	}
	p.want(http.StatusCreated, "POST", "/v1/semaphores/db/leases?capacity=1")
	for _, stream := range []string{dashboard[1] + "live", p.url + "/v1/semaphores/db/watch"} {
		response, err := http.Get(stream)
		if err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		defer response.Body.Close()
	}
	begin := time.Now()
	if state := p.stop(); state.ExitCode() != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("%v after %v: %s", state, time.Since(begin), p.log)
	}
}

// TestServe_GraceIsBounded checks that requests that would wait for too long are rejected with a hint
// to retry.
func TestServe_GraceIsBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "100ms")
	p.want(201, "POST", "/v1/semaphores/db/leases?capacity=1")
	var wg sync.WaitGroup
	wg.Go(func() { p.want(503, "POST", "/v1/semaphores/db/leases?wait=50s") })
	p.waitFor("an acquire waits", func() bool { return p.want(200, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	if state := p.stop(); state.ExitCode() != 0 {
		t.Errorf("%v: %s", state, p.log)
	}
	wg.Wait()
}

// startFails returns the output of a server that does not start.
func startFails(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := command(t, t.TempDir(), append([]string{"serve"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%v: the server started", args)
	}
	return string(out)
}

func TestServe_RejectsInvalidConfigurations(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "sema.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args []string
		env  []string
		want string
	}{
		{args: []string{"--listen", ":0"}, want: "sema token"},
		{env: []string{"SEMA_LISTEN=0.0.0.0:0"}, want: "--insecure"},
		{env: []string{"SEMA_STORE=host:"}, want: "need no server"},
		{args: []string{"--listen", "nowhere"}, want: "host:port"},
		{args: []string{"--listen", anywhere, "--tls-cert", "x"}, want: "both cert and key"},
		{args: []string{"--listen", anywhere, "--log-level", "loud"}, want: "debug, info"},
		{args: []string{"--listen", anywhere, "--store", "nonsense:"}, want: "no store"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - name: db\n    capasity: 3\n")}, want: "capasity"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - name: db\n    capacity: -3\n")}, want: "capacity -3"},
		{args: []string{"--listen", anywhere, "--config", file("tokens:\n  - name: a\n    hash: plain-secret\n")}, want: "64 hexadecimal digits"},
		{args: []string{"--listen", anywhere, "--config", "/does/not/exist"}, want: "no such file"},
		{args: []string{"--listen", anywhere, "--config", file("grace: 1s\n---\ngrace: 2s\n")}, want: "may only add tokens and semaphores"},
		{args: []string{"--listen", anywhere, "--config", file("grace: 1s\ngrace: 2s\n")}, want: "already defined"},
		{args: []string{"--listen", anywhere, "--config", file("grace: -1s\n")}, want: "grace"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {waiting: -1}\n")}, want: "limits.waiting"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {max_wait: -1s}\n")}, want: "limits.max_wait"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {colour: 1}\n")}, want: "colour"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {idle: 1h}\nstore: redis://127.0.0.1:1\n")}, want: "limits.idle"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - {name: db, capacity: 3}\n  - {name: db, capacity: 4}\n")}, want: "declared twice"},
		{args: []string{"--listen", anywhere, "--config", file("tokens:\n  - name: a\n    hash: " + server.HashToken("a") + "\n")}, want: "verbs: [read, acquire, admin]"},
		{args: []string{"--listen", anywhere}, env: []string{"XDG_STATE_HOME=", "HOME="}, want: "--store sqlite:///"},
		{args: []string{"--listen", anywhere}, env: []string{"XDG_STATE_HOME=here", "HOME=there"}, want: "--store sqlite:///"},
		{env: []string{"SEMA_GRACE=soon"}, args: []string{"--listen", anywhere}, want: "grace"},
	} {
		if out := startFails(t, c.env, c.args...); !strings.Contains(out, c.want) || strings.Contains(out, "plain-secret") {
			t.Errorf("%v %v: %s\nhas no %q, or a secret", c.env, c.args, out, c.want)
		}
	}
}

func TestServe_ConfigurationFile(t *testing.T) {
	t.Parallel()
	configured, token := createToken(t)
	directory := t.TempDir()
	file := filepath.Join(directory, "sema.yaml")
	text := "listen: 127.0.0.1:1\nsemaphores:\n  - name: tenant-*\n    capacity: 4\n    ttl: 30s\nlog: {format: json}\n" + configured
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, directory, "--config", file, "--listen", anywhere) // the flag takes precedence
	p.want(401, "GET", "/v1/semaphores")
	auth := []string{"Authorization", "Bearer " + token}
	p.want(201, "POST", "/v1/semaphores/tenant-a/leases", auth...)
	if a := p.want(200, "GET", "/v1/semaphores/tenant-a", auth...); a.body["capacity"] != 4.0 || a.body["ttl"] != 30.0 {
		t.Errorf("%v", a.body)
	}
	p.want(403, "POST", "/v1/semaphores/tenant-a/drain", auth...)
	p.stop()
	if !strings.Contains(p.log.String(), `{"time"`) || strings.Contains(p.log.String()+p.stdout.String(), token) {
		t.Errorf("%s%s", p.stdout, p.log)
	}
}

func TestServe_TLS(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	p := serve(t, t.TempDir(), "--listen", anywhere, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.File)
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: authority.Client(t), ForceAttemptHTTP2: true}}
	if a, err := send(known, "POST", p.url+"/v1/semaphores/db/leases?capacity=1"); err != nil || a.status != 201 {
		t.Errorf("%+v, %v", a, err)
	}
	unknown := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Client(t).RootCAs}}}
	if a, err := send(unknown, "GET", p.url+"/livez"); err == nil {
		t.Errorf("a client without a certificate gets %+v", a)
	}
}

// TestServe_ThreeServersOneIsKilled checks that three servers over one Redis are one service: one is
// killed, no lease is lost, and the bound holds.
func TestServe_ThreeServersOneIsKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var servers []*process
	for range 3 {
		servers = append(servers, serve(t, t.TempDir(), "--listen", anywhere, "--store", redis.URL()))
	}
	var alive atomic.Int64
	alive.Store(3)
	client := &http.Client{Timeout: 10 * time.Second}
	// at sends a request to one of the servers, and to another one if that does not reply.
	at := func(n int, method, path string, headers ...string) jsonReply {
		for {
			a, err := send(client, method, servers[n%int(alive.Load())].url+path, headers...)
			if err == nil && a.status != 503 {
				return a
			}
			n++
			time.Sleep(10 * time.Millisecond)
		}
	}
	const capacity, callers, turns = 3, 12, 12
	var inside, over, turn atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range turns {
				// With a key, a granted lease is not lost with its reply.
				a := at(i+n, "POST", fmt.Sprintf("/v1/semaphores/db/leases?capacity=%d&wait=30s", capacity), "Idempotency-Key", fmt.Sprint(i, " ", n))
				if a.status != 201 {
					t.Errorf("%+v", a)
					return
				}
				if inside.Add(1) > capacity {
					over.Add(1)
				}
				lease := "/v1/semaphores/db/leases/" + fmt.Sprint(a.body["id"])
				if kept := at(i+n+1, "PUT", lease); kept.status != 200 {
					t.Errorf("%s: %+v", lease, kept)
				}
				inside.Add(-1)
				if back := at(i+n+2, "DELETE", lease); back.status != 204 && back.status != 410 { // 410: a reply was lost, and the request was repeated
					t.Errorf("%s: %+v", lease, back)
				}
				if turn.Add(1) == callers*turns/2 {
					alive.Store(2)
					servers[2].kill()
				}
			}
		})
	}
	wg.Wait()
	if over.Load() > 0 || turn.Load() != callers*turns {
		t.Errorf("%d above the bound, %d turns of %d", over.Load(), turn.Load(), callers*turns)
	}
}
