//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// toFull runs sema with its output on a full disk.
func (s shell) toFull(args ...string) (code int, errs string) {
	s.t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer full.Close()
	cmd := s.command(args...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	return codeOf(s.t, cmd.Run()), stderr.String()
}

// TestCommands_OutputIsLost checks that a command fails if its output is lost: a script must not
// treat missing output as a result.
func TestCommands_OutputIsLost(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	lease := strings.TrimSpace(s.must("acquire", "x", "-n", "2"))
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "json"}, {"show", "x"}, {"show", "x", "-o", "json"}, {"watch", "x"}, {"watch", "x", "-o", "json"},
		{"set", "x", "--capacity", "2"}, {"resume", "x"}, {"renew", "x", lease}, {"renew", "x", lease, "-o", "json"},
		{"acquire", "y", "-o", "json"}, {"token"}, {"version"}, {"version", "-o", "json"}, {"completion", "bash"}, {"completion", "zsh"},
		{"--help"}, {"run", "--help"}, {"help", "run"}, {"doctor"}, {"doctor", "-o", "json"}, {"bench", "--for", "10ms"},
	} {
		code, errs := s.toFull(args...)
		if code != 74 || !strings.Contains(errs, "cannot write the output: no space left on device") || strings.Count(errs, "no space") != 1 {
			t.Errorf("sema %s: exit code %d, stderr %s", strings.Join(args, " "), code, errs)
		}
	}
	if got := s.show("x"); got.InUse != 1 {
		t.Errorf("a renewal changed the state: %+v", got)
	}
}

// TestAcquire_OutputIsLost checks that a lease is released if its id could not be printed.
func TestAcquire_OutputIsLost(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		code, errs := s.toFull("acquire", "x", "-n", "1")
		if code != 74 || !strings.Contains(errs, `the permit of "x" was released`) {
			t.Errorf("exit code %d, stderr %s", code, errs)
		}
		s.must("run", "x", "--no-wait", "--", "true")

		// A pipe without a reader.
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd := s.command("acquire", "x")
		cmd.Stdout = w
		if code := codeOf(t, cmd.Run()); code != 74 {
			t.Errorf("with a closed pipe: exit code %d", code)
		}
		w.Close()
		s.must("run", "x", "--no-wait", "--", "true")
	})
}
