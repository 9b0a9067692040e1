//go:build unix

package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/x/server"
)

// write replaces a file atomically, as configuration tools do.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func tokens(names ...string) string {
	text := "tokens:\n"
	for _, name := range names {
		text += fmt.Sprintf("  - {name: %s, hash: %q, verbs: [read, acquire]}\n", name, server.HashToken(name))
	}
	return text
}

func as(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestReload_Tokens checks that SIGHUP reloads tokens, held leases stay, and a bad file changes
// nothing.
func TestReload_Tokens(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file := filepath.Join(directory, "sema.yaml")
	write(t, file, tokens("a", "b"))
	p := serve(t, directory, "--listen", anywhere, "--config", file)
	lease := p.want(201, "POST", "/v1/semaphores/db/leases?capacity=9", as("a")...)
	request, err := http.NewRequest("POST", p.url+"/v1/semaphores/db/leases?hold=connection", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer b")
	held, err := http.DefaultClient.Do(request)
	if err != nil || held.StatusCode != http.StatusOK {
		t.Fatal(held, err)
	}
	defer held.Body.Close()
	hangup := func(text string) {
		t.Helper()
		before := p.log.String()
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.waitFor("the log contains "+text, func() bool { return strings.Contains(strings.TrimPrefix(p.log.String(), before), text) })
	}
	write(t, file, tokens("a", "c"))
	hangup(`changed="token c added, token b removed"`)
	p.want(200, "PUT", lease.at, as("a")...)
	p.want(201, "POST", "/v1/semaphores/db/leases", as("c")...)
	p.want(401, "GET", "/v1/semaphores", as("b")...)
	if a := p.want(200, "GET", "/v1/semaphores/db", as("a")...); a.body["in_use"] != 3.0 {
		t.Errorf("%v in use, want 3: leases of the removed token stay", a.body["in_use"])
	}
	for _, bad := range []string{"tokens: [", "tokens: []\n", tokens("a", "a")} {
		write(t, file, bad)
		hangup("nothing was changed")
		p.want(200, "PUT", lease.at, as("a")...)
		p.want(200, "GET", "/v1/semaphores", as("c")...)
	}
	write(t, file, tokens("a", "c")+"grace: 1s\n")
	hangup("changes that need a restart")
	hangup("changed=nothing")
	if text := p.log.String(); strings.Contains(text, server.HashToken("a")) {
		t.Error("a hash is in the log")
	}
}

// TestReload_Certificates checks that SIGHUP reloads certificates for new connections.
func TestReload_Certificates(t *testing.T) {
	t.Parallel()
	old, next := storetest.NewAuthority(t), storetest.NewAuthority(t)
	directory := t.TempDir()
	cert, key, ca := filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"), filepath.Join(directory, "ca.crt")
	install := func(a *storetest.Authority) {
		from, secret := a.Issue(t, "server")
		for to, name := range map[string]string{cert: from, key: secret, ca: a.File} {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			write(t, to, string(raw))
		}
	}
	install(old)
	p := serve(t, directory, "--listen", anywhere, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
	client := func(a *storetest.Authority) *http.Client {
		transport := &http.Transport{TLSClientConfig: a.Client(t), ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	before, after := client(old), client(next)
	lease, err := send(before, "POST", p.url+"/v1/semaphores/db/leases?capacity=1")
	if err != nil || lease.status != 201 {
		t.Fatal(lease, err)
	}
	if _, err := send(after, "GET", p.url+"/livez"); err == nil {
		t.Fatal("the next authority is already accepted")
	}
	write(t, cert, "nonsense")
	_ = p.Process.Signal(syscall.SIGHUP)
	p.waitFor("it keeps the old ones", func() bool { return strings.Contains(p.log.String(), "nothing was changed") })
	if a, err := send(client(old), "GET", p.url+"/livez"); err != nil || a.status != 200 {
		t.Errorf("after a bad reload: %+v, %v", a, err)
	}
	install(next)
	_ = p.Process.Signal(syscall.SIGHUP)
	p.waitFor("it reloads", func() bool { return strings.Contains(p.log.String(), "changed=certificates") })
	if a, err := send(before, "PUT", p.url+lease.at); err != nil || a.status != 200 {
		t.Errorf("a connection from before: %+v, %v", a, err)
	}
	if a, err := send(after, "GET", p.url+"/v1/semaphores"); err != nil || a.status != 200 {
		t.Errorf("%+v, %v", a, err)
	}
	mixed := after.Transport.(*http.Transport).TLSClientConfig.Clone()
	mixed.Certificates = old.Client(t).Certificates
	unknown := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: mixed.RootCAs, Certificates: mixed.Certificates}}}
	if a, err := send(unknown, "GET", p.url+"/livez"); err == nil {
		t.Errorf("a certificate of the old authority is accepted: %+v", a)
	}
	p.waitFor("failed handshakes are logged", func() bool { return strings.Contains(p.log.String(), "handshake") })
}

// TestServe_OutputIsClosed checks that a closed output pipe does not end the server.
func TestServe_OutputIsClosed(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file := filepath.Join(directory, "sema.yaml")
	write(t, file, tokens("a"))
	cmd := command(t, directory, "serve", "--listen", anywhere, "--config", file)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	ended := make(chan error, 1)
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	go func() { ended <- cmd.Wait(); close(ended) }()
	var output bytes.Buffer
	for !strings.Contains(output.String(), "try ") { // the server is announced
		if _, err := io.CopyN(&output, out, 1); err != nil {
			t.Fatalf("%v: %s", err, &output)
		}
	}
	out.Close()
	_, rest, _ := strings.Cut(output.String(), "API")
	p := &process{t: t, url: strings.TrimSuffix(strings.Fields(rest)[0], "/v1/semaphores"), log: &locked{}}
	for range 3 {
		p.want(401, "GET", "/v1/semaphores") // logged
	}
	select {
	case err := <-ended:
		t.Fatalf("the server has ended: %v", err)
	default:
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestServe_BindFailure checks the exit code of a server that cannot listen.
func TestServe_BindFailure(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cmd := command(t, t.TempDir(), "serve", "--listen", taken.Addr().String())
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exit.Unavailable || !strings.Contains(string(out), "--listen") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestServe_AnnouncesWhereItListens checks that 0.0.0.0 means IPv4, and is announced as such.
func TestServe_AnnouncesWhereItListens(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", "0.0.0.0:0", "--insecure")
	if !strings.HasPrefix(p.url, "http://0.0.0.0:") {
		t.Error(p.url)
	}
}

// TestServe_StateBelongsToTheUser checks that the server does not start if another user could read
// and change all permits.
func TestServe_StateBelongsToTheUser(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(string) error{
		"other users can write to the directory": func(d string) error { return os.Chmod(d, 0o777) },
		"user 65534 owns the directory":          func(d string) error { return os.Chown(d, 65534, 65534) },
	} {
		state := t.TempDir()
		directory := filepath.Join(state, "sema")
		if err := os.Mkdir(directory, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := spoil(directory); err != nil {
			t.Logf("%s: %v", what, err) // changing the owner of a directory requires root
			continue
		}
		cmd := command(t, state, "serve", "--listen", anywhere)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), what) || !strings.Contains(string(out), "--store") {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
}

// TestServe_LogsDescriptorExhaustion checks that a few connections that cannot be accepted are logged.
func TestServe_LogsDescriptorExhaustion(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	self := command(t, directory, "serve", "--listen", anywhere)
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 40 && exec "$0" "$@"`}, self.Args...)...)
	cmd.Env = self.Env
	p := start(t, cmd)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 60 {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(p.url, "http://"), 5*time.Second)
		if err != nil {
			break
		}
		open = append(open, c)
	}
	p.waitFor("it is logged", func() bool {
		return strings.Contains(p.log.String(), "level=ERROR") && strings.Contains(p.log.String(), "too many open files")
	})
}
