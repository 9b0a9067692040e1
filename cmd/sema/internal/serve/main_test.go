package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	_ "github.com/sema-go/sema/x/stores"
)

// variable is the environment variable that makes the test binary act as the server.
const variable = "SEMA_SERVE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	root := &cobra.Command{Use: "sema", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Command("test"), TokenCommand())
	err := root.Execute()
	explain.Print(os.Stderr, err)
	os.Exit(exit.Code(err))
}

// A process is a running server.
type process struct {
	*exec.Cmd
	t      *testing.T
	url    string
	stdout *bytes.Buffer // standard output
	log    *locked
	done   chan struct{}
}

// locked is a buffer that is safe for concurrent use.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer // not embedded: io.Copy would use its ReadFrom, without the lock
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// command returns the program, with its state in a directory.
func command(t *testing.T, directory string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), variable+"=1", "XDG_STATE_HOME="+directory)
	return cmd
}

// serve starts a server and waits until it announces its address.
func serve(t *testing.T, directory string, args ...string) *process {
	t.Helper()
	return start(t, command(t, directory, append([]string{"serve"}, args...)...))
}

// start starts the command of a server and waits until it announces its address.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, stdout: &bytes.Buffer{}, log: &locked{}, done: make(chan struct{})}
	p.Stderr = p.log
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(p.stdout, lines.Text())
		if found := regexp.MustCompile(`(https?://[^/]+)/v1/semaphores$`).FindStringSubmatch(lines.Text()); found != nil {
			p.url = found[1]
		}
		if strings.Contains(lines.Text(), "try") {
			break
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = p.Wait()
		close(p.done)
	}()
	if p.url == "" {
		<-p.done
		t.Fatalf("no address was announced: %s", p.log)
	}
	return p
}

// kill kills the server, like a crash.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.done
}

// stop sends a signal to stop, and returns how the server ended.
func (p *process) stop() *os.ProcessState {
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatalf("the server does not stop: %s", p.log)
	}
	return p.ProcessState
}

// A jsonReply is a response with its status and JSON.
type jsonReply struct {
	status int
	body   map[string]any
	at     string // Location
}

func send(client *http.Client, method, url string, headers ...string) (a jsonReply, err error) {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return a, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	a.status, a.at = response.StatusCode, response.Header.Get("Location")
	_ = json.Unmarshal(raw, &a.body)
	return a, err
}

func (p *process) want(status int, method, path string, headers ...string) jsonReply {
	p.t.Helper()
	a, err := send(http.DefaultClient, method, p.url+path, headers...)
	if err != nil || a.status != status {
		p.t.Fatalf("%s %s: %+v, %v, want %d", method, path, a, err, status)
	}
	return a
}

func (p *process) waitFor(what string, is func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("timeout waiting until %s: %s", what, p.log)
		}
	}
}
