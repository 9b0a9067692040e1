//go:build unix

package enginetest_test

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

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]func(*proctest.Child){"owner": ownServer})
}

// sleeper is a server that answers once it has written its number to a file.
func sleeper(t enginetest.TB, script string) (p *enginetest.Process, directory string) {
	directory = enginetest.Directory(t, "")
	return enginetest.NewProcess(t, enginetest.Program{
		Path: enginetest.Need(t, "sh", "dash"), Args: []string{"-c", script + "\necho $$ >pid; while :; do sleep 0.05; done"}, Dir: directory,
		Answers: func(pid int) error {
			text, err := os.ReadFile(filepath.Join(directory, "pid"))
			if err == nil && strings.TrimSpace(string(text)) != fmt.Sprint(pid) {
				err = errors.New("it has not said its number")
			}
			return err
		},
	}), directory
}

// ownServer is a program that ends in the way it is told, with a server.
func ownServer(c *proctest.Child) {
	err := enginetest.Run(func(s *enginetest.Scope) {
		p, directory := sleeper(s, "")
		c.Must(p.Start())
		pid, err := os.ReadFile(filepath.Join(directory, "pid"))
		c.Must(err)
		c.Say("%s %s", strings.TrimSpace(string(pid)), directory)
		switch c.Hear() {
		case "fail":
			s.Fatalf("no luck")
		case "skip":
			s.Skipf("no server")
		case "panic":
			panic("on purpose")
		case "wait":
			select {}
		}
	})
	c.Say("%v", err)
}

func TestAServerIsGoneWhenItsScopeEnds(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct {
		says   string         // in the end
		signal syscall.Signal // beforehand
	}{
		"return": {says: "<nil>"}, "fail": {says: "no luck"}, "skip": {says: "skipped: no server"}, "panic": {},
		"interrupted": {says: "ended by a signal: interrupt", signal: syscall.SIGINT}, "killed": {signal: syscall.SIGKILL},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if how == "killed" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends children with their parent")
			}
			owner := proctest.Start(t, "owner")
			var pid int
			var directory string
			if _, err := fmt.Sscan(owner.Hear(), &pid, &directory); err != nil {
				t.Fatal(err)
			}
			if want.signal != 0 {
				owner.Say("wait")
				owner.Signal(want.signal)
			} else {
				owner.Say("%s", how)
			}
			if want.says != "" {
				owner.Expect(want.says)
			}
			if err := owner.Wait(); (err == nil) != (want.says != "") {
				t.Errorf("the owner ended with %v", err)
			}
			for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
				if want.signal != syscall.SIGKILL || time.Now().After(deadline) {
					t.Fatal("the server outlives its owner")
				}
			}
			if want.signal == syscall.SIGKILL {
				os.RemoveAll(directory)
			} else if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}

// TestKillWaitsForAllThatWasForked: what is left of a server would be in the way
// of its next start.
func TestKillWaitsForAllThatWasForked(t *testing.T) {
	t.Parallel()
	p, directory := sleeper(t, "(sleep 0.5; touch late) &")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if _, err := os.Stat(filepath.Join(directory, "late")); err != nil {
		t.Error("what it has forked is left")
	}
}

func TestAServerThatEndsAtOnceSaysWhy(t *testing.T) {
	t.Parallel()
	p, _ := sleeper(t, "echo no disk; exit 1")
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
}
