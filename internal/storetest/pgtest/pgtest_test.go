package pgtest

import (
	"os/exec"
	"strings"
	"testing"
)

func TestServer_KeepsItsDataWhenRestarted(t *testing.T) {
	t.Parallel()
	s := Start(t)
	must := func(statement, want string) {
		t.Helper()
		if got, err := s.Psql("postgres", statement); err != nil || got != want {
			t.Fatalf("%s: %q, %v, want %q", statement, got, err, want)
		}
	}
	must("CREATE TABLE kept AS SELECT 7 AS n", "")
	for _, end := range []func(){s.Stop, s.StopAtOnce, s.Kill} {
		end()
		if _, err := s.Psql("postgres", "SELECT 1"); err == nil {
			t.Error("the server replies after it was stopped")
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		must("SELECT n FROM kept", "7")
	}
	s.Restart()
	must("SELECT n FROM kept", "7")
}

func TestServer_KilledLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	var memory string
	t.Run("killed", func(t *testing.T) {
		s := Start(t)
		memory = strings.Fields(s.pidFile()[6])[1]
		s.Kill()
	})
	segments, err := exec.Command("ipcs", "-m").Output()
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(segments)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == memory {
			t.Errorf("shared memory was not removed: %s", line)
		}
	}
}
