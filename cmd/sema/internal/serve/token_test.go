package serve

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// createToken runs "sema token". entry is its stdout, and secret the last line of its stderr.
func createToken(t *testing.T, args ...string) (entry, secret string) {
	t.Helper()
	cmd := command(t, t.TempDir(), append([]string{"token"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	return out.String(), lines[len(lines)-1]
}

// TestToken_IsAppended checks that 'sema token >> sema.yaml' works for any file, any number of times.
func TestToken_IsAppended(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"new":                  "",
		"comments":             "# nothing yet\n",
		"without tokens":       "log: {format: json}\n",
		"without line end":     "log: {format: json}",
		"tokens last":          "listen: 127.0.0.1:1\ntokens:\n  - name: old\n    hash: sha256:" + strings.Repeat("0", 64) + "\n    verbs: [read]\n",
		"tokens in between":    "tokens:\n- name: old\n  hash: sha256:" + strings.Repeat("0", 64) + "\n  verbs: [read]\nsemaphores:\n- name: ci-x\n  capacity: 7\n",
		"one line, and others": "tokens: []\nsemaphores: [{name: ci-x, capacity: 7}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "sema.yaml")
			first, ci := createToken(t, "--name", "ci", "--prefix", "ci-")
			second, ops := createToken(t, "--name", "ops: # \"all\"", "--verbs", "read,admin")
			if err := os.WriteFile(file, []byte(before+first+second), 0o600); err != nil {
				t.Fatal(err)
			}
			p := serve(t, t.TempDir(), "--config", file, "--listen", anywhere)
			p.want(401, "GET", "/v1/semaphores")
			p.want(201, "POST", "/v1/semaphores/ci-x/leases?capacity=3", "Authorization", "Bearer "+ci)
			p.want(403, "POST", "/v1/semaphores/other/leases?capacity=3", "Authorization", "Bearer "+ci)
			p.want(403, "POST", "/v1/semaphores/ci-x/leases", "Authorization", "Bearer "+ops)
			a := p.want(200, "GET", "/v1/semaphores/ci-x", "Authorization", "Bearer "+ops)
			if strings.Contains(before, "capacity: 7") && a.body["capacity"] != 7.0 {
				t.Errorf("an earlier declaration is lost: %v", a.body)
			}
		})
	}
}

// TestToken_SecretIsApart checks that the entry contains no secret, and lists the token's verbs.
func TestToken_SecretIsApart(t *testing.T) {
	t.Parallel()
	entry, secret := createToken(t)
	if !strings.HasPrefix(secret, "sema_") || strings.Contains(entry, "sema_") || !strings.Contains(entry, "verbs: [read, acquire]") {
		t.Errorf("stdout %q, token %q", entry, secret)
	}
	out, err := command(t, t.TempDir(), "token", "--name", "ci", "-o", "json").Output()
	var made struct {
		Token, Name, Hash string
		Verbs             []string
	}
	if err != nil || json.Unmarshal(out, &made) != nil || !strings.HasPrefix(made.Token, "sema_") || made.Name != "ci" || len(made.Verbs) != 2 || !strings.HasPrefix(made.Hash, "sha256:") {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"--verbs", ""}, {"--verbs", "frob"}, {"--name", ""}, {"-o", "toml"}} {
		if out, err := command(t, t.TempDir(), append([]string{"token"}, args...)...).Output(); err == nil || len(out) > 0 {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestConfig_OfSeveralDocuments checks that further documents add tokens and semaphores, and that a
// setting or a mistake in one of them is an error.
func TestConfig_OfSeveralDocuments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sema.yaml")
	text := "listen: 127.0.0.1:1\nsemaphores: [{name: a, capacity: 1}]\n---\nsemaphores: [{name: b, capacity: 2}]\n---\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaults()
	if err := c.read(file); err != nil || c.Listen != "127.0.0.1:1" || len(c.Semaphores) != 2 || c.Log.Level != "info" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"lissten", "listen"} {
		if err := os.WriteFile(file, []byte(text+bad+": x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.read(file); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "only add tokens") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
