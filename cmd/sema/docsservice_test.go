//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// curlOrFail declares curl as a function that fails unless the status is that of a success or of
// a precondition that does not hold, and that ends streams. In place of the leases of the page,
// blocks use one of their own.
const curlOrFail = `
curl() {
	if [ "$1" = -N ]; then timeout --preserve-status -s INT 1 curl -sS "$@" || true; return; fi
	local reply; reply=$(command curl -sS -w '\n%{http_code}' "$@")
	printf '%s\n' "$reply"
	case ${reply##*$'\n'} in 2*|412) ;; *) return 1 ;; esac
}
api=http://127.0.0.1:7362/v1/semaphores
lease() { command curl -sS -X POST "$api/gpu/leases?capacity=4" | sed 's/.*"id":"\([^"]*\)".*/\1/'; }
`

// TestDocs_ServiceWorks runs the commands, the programs and the configuration of
// docs/service.md.
func TestDocs_ServiceWorks(t *testing.T) {
	t.Parallel()
	bash, python := storetest.Need(t, "bash", "bash"), storetest.Need(t, "python3", "python3")
	storetest.Need(t, "curl", "curl")
	text, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(served(t).store, "sema://")
	here := strings.NewReplacer("http://127.0.0.1:7362", "http://"+address)
	ran := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		ran[block[1]]++
		var cmd *exec.Cmd
		switch code := block[2]; block[1] {
		case "sh":
			if code == "go run ./cmd/sema serve\n" {
				continue // it runs
			}
			code = regexp.MustCompile(`\d{16}\.\d{16}\.\w+…`).ReplaceAllString(code, "$$id")
			code = regexp.MustCompile(`/\d{16}\b`).ReplaceAllString(code, "/$${id%%.*}")
			code = strings.NewReplacer("do …; done", "do :; done", "/drain?wait=30s", "/drain").Replace(code)
			if strings.Contains(code, "$id") || strings.Contains(code, "${id") {
				code = "id=$(lease)\n" + code
			}
			cmd = exec.Command(bash, "-e", "-u", "-c", here.Replace(curlOrFail+code))
		case "python":
			cmd = exec.Command(python, "-c", here.Replace(code))
		case "js":
			cmd = exec.Command(storetest.Need(t, "node", "nodejs"), "-e", here.Replace(code))
		case "yaml":
			checkConfiguration(t, code)
			continue
		default:
			continue
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s\noutput:\n%s", err, block[2], out)
		}
	}
	if ran["sh"] < 4 || ran["python"] < 1 || ran["js"] < 1 || ran["yaml"] < 1 {
		t.Errorf("ran %v", ran)
	}
}

// checkConfiguration starts a server with a configuration of the page, with the files and the
// store that it names.
func checkConfiguration(t *testing.T, text string) {
	t.Helper()
	s := onHost(t)
	entry := s.must("token", "--name", "ci")
	hash := regexp.MustCompile(`sha256:\w+`).FindString(entry)
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	text = strings.NewReplacer(
		"listen: :7362", "listen: 127.0.0.1:0", "redis://redis:6379", redistest.Shared.URL(t), "hash: sha256:…", "hash: "+hash,
		"tls.crt", cert, "tls.key", key, "ca.crt", authority.File,
	).Replace(text)
	file := filepath.Join(t.TempDir(), "sema.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env, s.store = []string{"XDG_STATE_HOME=" + t.TempDir()}, ""
	server := s.start("serve", "--config", file)
	for !strings.Contains(server.line(), "https://") {
	}
}
