package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/x/server"
)

// TestToken_ErrorsAndHints checks what commands print without a valid token, and with one that
// lacks a verb or the prefix. The hints are about the token, not about an unreachable store.
func TestToken_ErrorsAndHints(t *testing.T) {
	t.Parallel()
	const secret = "sema_hush-hush-"
	config := filepath.Join(t.TempDir(), "sema.yaml")
	text := fmt.Sprintf(`
semaphores:
  - {name: ci-builds, capacity: 12}
  - {name: other, capacity: 2}
tokens:
  - {name: ci, hash: %q, prefix: ci-, verbs: [read, acquire]}
  - {name: reader, hash: %q, verbs: [read]}
`, server.HashToken(secret+"ci"), server.HashToken(secret+"reader"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := served(t, "--config", config)
	with := func(token string) shell {
		return shell{t: t, store: s.store, env: []string{"SEMA_TOKEN=" + token}}
	}
	const missing, wrong, weak = "hint: set SEMA_TOKEN, or token_file= in the URL, to a token", "hint: check that SEMA_TOKEN, or token= in the URL, is a whole token", "hint: ask the operator of the service for a token that allows this"
	const rights = `; its verbs are read, acquire, on names with the prefix "ci-"`
	ci := `lacks the verb admin on "ci-builds"` + rights
	for _, c := range []struct {
		token string
		args  string
		texts []string
	}{
		{"", "ls", []string{"requires a token, and this client has none", missing}},
		{secret + "old", "ls", []string{"rejects the token (source: token=… or SEMA_TOKEN)", wrong}},
		{secret + "old", "run ci-a -n 1 -- true", []string{"rejects the token", wrong}},
		{secret + "ci", "set ci-builds --capacity 3", []string{ci, weak}},
		{secret + "ci", "drain ci-builds", []string{ci, weak}},
		{secret + "ci", "show other", []string{`token "ci" may not use "other"` + rights, weak}},
		{secret + "reader", "run ci-a -n 1 -- true", []string{`token "reader" lacks the verb acquire on "ci-a"; its verbs are read`, weak}},
		{secret + "reader", "acquire ci-a -n 1", []string{`token "reader" lacks the verb acquire on "ci-a"; its verbs are read`, weak}},
	} {
		r := with(c.token).expect(77, c.texts, strings.Fields(c.args)...)
		if all := r.out + r.err; strings.Contains(all, "hush") || strings.Contains(all, "unavailable") || strings.Contains(all, "can be reached") || strings.Contains(all, "doctor") {
			t.Errorf("sema %s: %s", c.args, all)
		}
	}
	for token, want := range map[string]string{"ci": "ci-builds 0 12 0 open", "reader": "ci-builds 0 12 0 open other 0 2 0 open"} { // not used yet
		table := strings.Join(strings.Fields(with(secret+token).must("ls")), " ")
		if !strings.HasSuffix(table, "STATUS "+want) {
			t.Errorf("%s: %s, want %s", token, table, want)
		}
	}
	if got := with(secret + "ci").show("ci-builds"); got.Capacity != 12 || len(got.Holders) != 0 {
		t.Errorf("%+v", got)
	}
}
