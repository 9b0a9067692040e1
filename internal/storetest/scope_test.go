//go:build unix

package storetest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/storetest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]func(*proctest.Child){"owner": runOwner})
}

// newSleeper returns a server that is ready once it has written its process ID
// to a file.
func newSleeper(t storetest.TB, script string) (p *storetest.Process, directory string) {
	directory = storetest.Directory(t, "")
	return storetest.NewProcess(t, storetest.Program{
		Path: storetest.Need(t, "sh", "dash"), Args: []string{"-c", script + "\necho $$ >pid; while :; do sleep 0.05; done"}, Dir: directory,
		Ready: func(pid int) error {
			text, err := os.ReadFile(filepath.Join(directory, "pid"))
			if err == nil && strings.TrimSpace(string(text)) != fmt.Sprint(pid) {
				err = errors.New("it has not written its process ID")
			}
			return err
		},
	}), directory
}

// runOwner starts a server and ends in the way that its parent requests.
func runOwner(c *proctest.Child) {
	err := storetest.Run(func(s *storetest.Scope) {
		p, directory := newSleeper(s, "")
		c.Must(p.Start())
		pid, err := os.ReadFile(filepath.Join(directory, "pid"))
		c.Must(err)
		c.Send("%s %s", strings.TrimSpace(string(pid)), directory)
		switch c.Receive() {
		case "fail":
			s.Fatalf("on purpose")
		case "skip":
			s.Skipf("no server")
		case "panic":
			panic("on purpose")
		case "wait":
			select {}
		}
	})
	c.Send("%v", err)
}

func TestScope_StopsItsServersWhenItEnds(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct {
		result string         // sent at the end; "": nothing
		signal syscall.Signal // sent before; 0: none
	}{
		"return": {result: "<nil>"}, "fail": {result: "on purpose"}, "skip": {result: "skipped: no server"}, "panic": {},
		"interrupted": {result: "ended by a signal: interrupt", signal: syscall.SIGINT}, "killed": {signal: syscall.SIGKILL},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if how == "killed" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends children with their parent")
			}
			owner := proctest.Start(t, "owner")
			var pid int
			var directory string
			if _, err := fmt.Sscan(owner.Receive(), &pid, &directory); err != nil {
				t.Fatal(err)
			}
			if want.signal != 0 {
				owner.Send("wait")
				owner.Signal(want.signal)
			} else {
				owner.Send("%s", how)
			}
			if want.result != "" {
				owner.Expect(want.result)
			}
			if err := owner.Wait(); (err == nil) != (want.result != "") {
				t.Errorf("the owner exited with %v", err)
			}
			for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
				if want.signal != syscall.SIGKILL || time.Now().After(deadline) {
					t.Fatal("the server outlived its owner")
				}
			}
			if want.signal == syscall.SIGKILL {
				os.RemoveAll(directory)
			} else if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its directory was not removed: %v", err)
			}
		})
	}
}

// TestProcess_KillWaitsForForkedProcesses: a process left by a server would
// disturb the server's next start.
func TestProcess_KillWaitsForForkedProcesses(t *testing.T) {
	t.Parallel()
	p, directory := newSleeper(t, "(sleep 0.5; touch late) &")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if _, err := os.Stat(filepath.Join(directory, "late")); err != nil {
		t.Error("Kill returned before the forked process ended")
	}
}

func TestProcess_StartReportsTheOutputOfAFailedServer(t *testing.T) {
	t.Parallel()
	p, _ := newSleeper(t, "echo no disk; exit 1")
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
}
