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

// variable says that this is not the test but the server.
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

// A process is a server that runs.
type process struct {
	*exec.Cmd
	t    *testing.T
	url  string
	said *bytes.Buffer // on standard output
	log  *locked
	done chan struct{}
}

// locked is a buffer that several write to and read.
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

// command is the program, with its state in a directory.
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

// serve starts a server and waits until it says where it is.
func serve(t *testing.T, directory string, args ...string) *process {
	t.Helper()
	return start(t, command(t, directory, append([]string{"serve"}, args...)...))
}

// start starts the command of a server and waits until it says where it is.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, said: &bytes.Buffer{}, log: &locked{}, done: make(chan struct{})}
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
		fmt.Fprintln(p.said, lines.Text())
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
		t.Fatalf("it does not serve: %s", p.log)
	}
	return p
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.done
}

// stop tells it to, and returns how it ended.
func (p *process) stop() *os.ProcessState {
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatalf("it does not stop: %s", p.log)
	}
	return p.ProcessState
}

// An answer is a status, and what JSON there was.
type answer struct {
	status int
	body   map[string]any
	at     string // Location
}

func ask(client *http.Client, method, url string, headers ...string) (a answer, err error) {
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

func (p *process) want(status int, method, path string, headers ...string) answer {
	p.t.Helper()
	a, err := ask(http.DefaultClient, method, p.url+path, headers...)
	if err != nil || a.status != status {
		p.t.Fatalf("%s %s: %+v, %v, want %d", method, path, a, err, status)
	}
	return a
}

func (p *process) waitFor(what string, is func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("it never came to be that %s: %s", what, p.log)
		}
	}
}
