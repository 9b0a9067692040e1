package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
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

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/x/server"
)

const anywhere = "127.0.0.1:0"

// What it says to try works when pasted.
func TestTheLineToTryWorks(t *testing.T) {
	t.Parallel()
	enginetest.Need(t, "curl", "curl")
	p := serve(t, t.TempDir(), "--listen", anywhere)
	line := regexp.MustCompile(`curl .*`).FindString(p.said.String())
	out, err := exec.Command("sh", "-c", line).Output()
	if err != nil || !strings.Contains(string(out), `"id"`) {
		t.Errorf("%s: %s, %v", line, out, err)
	}
}

// A script of somebody's, in another language.
func TestAForeignClient(t *testing.T) {
	t.Parallel()
	python := enginetest.Need(t, "python3", "python3")
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

// A server that is killed and started again has lost nothing.
func TestKilledAndStartedAgain(t *testing.T) {
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

// When it is told to stop, those who wait are served, and leases live on.
func TestItStopsInOrder(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	p := serve(t, directory, "--listen", anywhere, "--ready-delay", "300ms")
	held := p.want(201, "POST", "/v1/semaphores/db/leases?capacity=1")
	var wg sync.WaitGroup
	var waited answer
	wg.Go(func() { waited = p.want(201, "POST", "/v1/semaphores/db/leases?wait=30s") })
	p.waitFor("somebody waits", func() bool { return p.want(200, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	wg.Go(func() {
		if state := p.stop(); state.ExitCode() != 0 {
			t.Errorf("%v: %s", state, p.log)
		}
	})
	p.waitFor("it says that it leaves", func() bool {
		a, err := ask(http.DefaultClient, "GET", p.url+"/readyz")
		return err == nil && a.status == 503
	})
	p.want(201, "POST", "/v1/semaphores/other/leases?capacity=1") // balancers do not know yet
	p.want(204, "DELETE", held.at)
	wg.Wait()
	p = serve(t, directory, "--listen", anywhere)
	p.want(200, "PUT", waited.at)
}

// While those who wait may finish, leases are renewed and released.
func TestRenewalsAreServedWhileItStops(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "15s")
	held := p.want(http.StatusCreated, "POST", "/v1/semaphores/db/leases?capacity=1")
	waited := make(chan answer, 1)
	go func() {
		a, _ := ask(http.DefaultClient, "POST", p.url+"/v1/semaphores/db/leases?wait=30s")
		waited <- a
	}()
	p.waitFor("somebody waits", func() bool { return p.want(http.StatusOK, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitFor("it refuses who is new", func() bool {
		a, err := ask(http.DefaultClient, "POST", p.url+"/v1/semaphores/db/leases")
		return err == nil && a.status == http.StatusServiceUnavailable
	})
	p.want(http.StatusOK, "PUT", held.at)
	p.want(http.StatusNoContent, "DELETE", held.at)
	if a := <-waited; a.status != http.StatusCreated {
		t.Errorf("who waited got %+v", a)
	}
	<-p.done
	if !p.ProcessState.Success() {
		t.Errorf("%v: %s", p.ProcessState, p.log)
	}
}

// From the moment that it can have said anything, it stops in order.
func TestASignalThatComesEarly(t *testing.T) {
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

// Who looks at the dashboard, or watches, does not hold it up.
func TestAViewerDoesNotUseUpTheGrace(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "15s")
	dashboard := regexp.MustCompile(`dashboard +(http.*/ui/)\n`).FindStringSubmatch(p.said.String())
	if dashboard == nil {
		t.Fatalf("it does not say where the dashboard is: %s", p.said)
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

// Those who would wait for too long are told to ask again.
func TestGraceHasAnEnd(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere, "--grace", "100ms")
	p.want(201, "POST", "/v1/semaphores/db/leases?capacity=1")
	var wg sync.WaitGroup
	wg.Go(func() { p.want(503, "POST", "/v1/semaphores/db/leases?wait=50s") })
	p.waitFor("somebody waits", func() bool { return p.want(200, "GET", "/v1/semaphores/db").body["waiting"] == 1.0 })
	if state := p.stop(); state.ExitCode() != 0 {
		t.Errorf("%v: %s", state, p.log)
	}
	wg.Wait()
}

// refused is what it says when it will not start.
func refused(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := command(t, t.TempDir(), append([]string{"serve"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%v: it ran", args)
	}
	return string(out)
}

func TestWhatItRefuses(t *testing.T) {
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
		says string
	}{
		{args: []string{"--listen", ":0"}, says: "sema token"},
		{env: []string{"SEMA_LISTEN=0.0.0.0:0"}, says: "--insecure"},
		{env: []string{"SEMA_STORE=host:"}, says: "need no server"},
		{args: []string{"--listen", "nowhere"}, says: "host:port"},
		{args: []string{"--listen", anywhere, "--tls-cert", "x"}, says: "both cert and key"},
		{args: []string{"--listen", anywhere, "--log-level", "loud"}, says: "debug, info"},
		{args: []string{"--listen", anywhere, "--store", "nonsense:"}, says: "no store"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - name: db\n    capasity: 3\n")}, says: "capasity"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - name: db\n    capacity: -3\n")}, says: "capacity -3"},
		{args: []string{"--listen", anywhere, "--config", file("tokens:\n  - name: a\n    hash: plain-secret\n")}, says: "64 hexadecimal digits"},
		{args: []string{"--listen", anywhere, "--config", "/does/not/exist"}, says: "no such file"},
		{args: []string{"--listen", anywhere, "--config", file("grace: 1s\n---\ngrace: 2s\n")}, says: "may only add tokens and semaphores"},
		{args: []string{"--listen", anywhere, "--config", file("grace: 1s\ngrace: 2s\n")}, says: "already defined"},
		{args: []string{"--listen", anywhere, "--config", file("grace: -1s\n")}, says: "grace"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {waiting: -1}\n")}, says: "limits.waiting"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {max_wait: -1s}\n")}, says: "limits.max_wait"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {colour: 1}\n")}, says: "colour"},
		{args: []string{"--listen", anywhere, "--config", file("limits: {idle: 1h}\nstore: redis://127.0.0.1:1\n")}, says: "limits.idle"},
		{args: []string{"--listen", anywhere, "--config", file("semaphores:\n  - {name: db, capacity: 3}\n  - {name: db, capacity: 4}\n")}, says: "declared twice"},
		{args: []string{"--listen", anywhere, "--config", file("tokens:\n  - name: a\n    hash: " + server.HashToken("a") + "\n")}, says: "verbs: [read, acquire, admin]"},
		{args: []string{"--listen", anywhere}, env: []string{"XDG_STATE_HOME=", "HOME="}, says: "--store sqlite:///"},
		{args: []string{"--listen", anywhere}, env: []string{"XDG_STATE_HOME=here", "HOME=there"}, says: "--store sqlite:///"},
		{env: []string{"SEMA_GRACE=soon"}, args: []string{"--listen", anywhere}, says: "grace"},
	} {
		if out := refused(t, c.env, c.args...); !strings.Contains(out, c.says) || strings.Contains(out, "plain-secret") {
			t.Errorf("%v %v: %s\nhas no %q, or a secret", c.env, c.args, out, c.says)
		}
	}
}

func TestAConfigurationFile(t *testing.T) {
	t.Parallel()
	configured, token := createToken(t)
	directory := t.TempDir()
	file := filepath.Join(directory, "sema.yaml")
	text := "listen: 127.0.0.1:1\nsemaphores:\n  - name: tenant-*\n    capacity: 4\n    ttl: 30s\nlog: {format: json}\n" + configured
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, directory, "--config", file, "--listen", anywhere) // the flag counts
	p.want(401, "GET", "/v1/semaphores")
	auth := []string{"Authorization", "Bearer " + token}
	p.want(201, "POST", "/v1/semaphores/tenant-a/leases", auth...)
	if a := p.want(200, "GET", "/v1/semaphores/tenant-a", auth...); a.body["capacity"] != 4.0 || a.body["ttl"] != 30.0 {
		t.Errorf("%v", a.body)
	}
	p.want(403, "POST", "/v1/semaphores/tenant-a/drain", auth...)
	p.stop()
	if !strings.Contains(p.log.String(), `{"time"`) || strings.Contains(p.log.String()+p.said.String(), token) {
		t.Errorf("%s%s", p.said, p.log)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	authority := enginetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	p := serve(t, t.TempDir(), "--listen", anywhere, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.File)
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: authority.Client(t), ForceAttemptHTTP2: true}}
	if a, err := ask(known, "POST", p.url+"/v1/semaphores/db/leases?capacity=1"); err != nil || a.status != 201 {
		t.Errorf("%+v, %v", a, err)
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Client(t).RootCAs}}}
	if a, err := ask(stranger, "GET", p.url+"/livez"); err == nil {
		t.Errorf("a stranger is answered: %+v", a)
	}
}

// Three servers over one Redis are one service: one is killed, and nobody loses a
// lease, and nobody is let in who should not be.
func TestThreeServersOfWhichOneIsKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var servers []*process
	for range 3 {
		servers = append(servers, serve(t, t.TempDir(), "--listen", anywhere, "--store", redis.URL()))
	}
	var alive atomic.Int64
	alive.Store(3)
	client := &http.Client{Timeout: 10 * time.Second}
	// at asks one of the servers, and another one if that does not answer.
	at := func(n int, method, path string, headers ...string) answer {
		for {
			a, err := ask(client, method, servers[n%int(alive.Load())].url+path, headers...)
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
				// With a key, what was granted is not lost with its answer.
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
				if back := at(i+n+2, "DELETE", lease); back.status != 204 && back.status != 410 { // 410: an answer was lost, and it was said again
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
		t.Errorf("%d too many, %d turns of %d", over.Load(), turn.Load(), callers*turns)
	}
}
