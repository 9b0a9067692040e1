//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

// TestDocs_CommandsWork runs the commands of docs/cli.md in a shell. The scripts in them do nothing,
// and the store is the test's.
func TestDocs_CommandsWork(t *testing.T) {
	t.Parallel()
	bash := storetest.Need(t, "bash", "bash")
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	s := onRedis(t)
	for _, name := range []string{"builds", "partner-api", "db", "old"} {
		s.must("run", name, "-n", "2", "--", "true")
	}
	lease := strings.TrimSpace(s.must("acquire", "db"))
	number, _, _ := strings.Cut(lease, ".")
	here := t.TempDir()
	for _, script := range []string{"call.sh", "maintain.sh", "deploy.sh", "sync.sh", "train.py"} {
		if err := os.WriteFile(filepath.Join(here, script), []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, filepath.Join(here, "sema")); err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		lines := block[1]
		for from, to := range map[string]string{
			"make install ":                           "true ",
			"redis://redis.internal:6379":             s.store,
			"1763220000000001":                        number,
			"sema watch builds -o json ":              "sema watch builds -o json >watched & until [ -s watched ]; do sleep 0.1; done; kill -INT $!; wait $! ",
			"sema drain db && ./maintain.sh && sema ": "sema release db " + strconv.Quote(lease) + "; sema drain db && ./maintain.sh && sema ",
		} {
			lines = strings.ReplaceAll(lines, from, to)
		}
		if strings.Contains(lines, "revoke") { // before the commands that drain the semaphore
			before, after, _ := strings.Cut(lines, "sema revoke db "+number)
			_, after, _ = strings.Cut(after, "\n")
			lines = "sema revoke db " + number + " --why 'stuck since noon' --now --yes\n" + before + after
			lines = strings.ReplaceAll(lines, "sema release db "+strconv.Quote(lease)+"; ", "")
		}
		cmd := exec.Command(bash, "-e", "-u", "-c", lines)
		cmd.Dir = here
		cmd.Env = append(os.Environ(), "SEMA_STORE="+s.store, "PATH="+here+":"+os.Getenv("PATH"), quickly)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s\noutput:\n%s", err, lines, output)
		}
	}
}
