//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The scripts count their turns before they say that they are ready: a signal to
// the group also ends the process that counts.

func TestSignalsReachTheWholeGroup(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--", "sh", "-c", `
		report() { trap "sleep 60 & echo $1" USR1; echo ready; for n in $turns; do sleep 0.02; done; }
		turns=$(seq 3000); report child & report parent`)
	p.line()
	p.line()
	p.Signal(syscall.SIGUSR1)
	if first, second := p.line(), p.line(); min(first, second) != "child" || max(first, second) != "parent" {
		t.Errorf("it says %q and %q", first, second)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
	p.silent() // also what it has started
}

func TestACommandMayHandleASignalAndEndWell(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--", "sh", "-c", `trap 'echo bye; exit 3' INT; turns=$(seq 3000); echo ready; for n in $turns; do sleep 0.02; done`)
	p.line()
	p.Signal(os.Interrupt)
	if got, code := p.line(), p.wait(); got != "bye" || code != 3 {
		t.Errorf("it says %q and ends with %d", got, code)
	}
}

func TestWhoDoesNotEndIsKilledIfToldSo(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--kill-after", "200ms", "--", "sh", "-c", `trap '' TERM; turns=$(seq 3000); sleep 60 & echo ready; for n in $turns; do wait; sleep 0.02; done`)
	p.line()
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 128+9 {
		t.Errorf("exit code %d\n%s", code, p.err.text())
	}
	p.silent()
}

func TestAWaitIsEndedByASignal(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holding(s, "x", "-n", "1")
		p := s.start("run", "x", "--", "echo", "never")
		waiting := func(n string) func() bool {
			return func() bool { return strings.Contains(s.must("ls", "-o", "json"), `"waiting": `+n) }
		}
		eventually(t, "it waits", waiting("1"))
		p.Signal(syscall.SIGTERM)
		if code := p.wait(); code != 128+15 {
			t.Errorf("exit code %d", code)
		}
		eventually(t, "nobody waits", waiting("0"))
	})
}

// TestIgnoredSignalsStayIgnored: nohup sema run … is as sema run … nohup.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	cmd := onHost(t).command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP; exec "$0" run x -- sh -c 'kill -HUP $$; echo ready; cat'`, binary}
	p := startCommand(t, cmd)
	p.line()
	p.Signal(syscall.SIGHUP)
	p.in.Close()
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestAKilledWrapperFreesNothingThatIsUsed: on one machine the command holds the
// permit as well.
func TestAKilledWrapperFreesNothingThatIsUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("locks are inherited on Linux only")
	}
	t.Parallel()
	s := onHost(t)
	p := s.start("run", "x", "-n", "1", "--", "sh", "-c", "echo $$; exec cat")
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.wait()
	s.expect(75, nil, "run", "x", "--no-wait", "--", "true")
	syscall.Kill(pid, syscall.SIGKILL)
	p.silent()
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
}

// TestACommandDiesWithItsWrapper where nobody would renew its lease.
func TestACommandDiesWithItsWrapper(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel of Linux does this")
	}
	t.Parallel()
	s := onRedis(t)
	p := s.start("run", "x", "-n", "1", "--ttl", "3s", "--", "sh", "-c", "echo ready; exec sleep 100")
	p.line()
	p.Kill()
	p.silent()
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
}

// TestACommandThatIsStoppedElsewhereKeepsItsPermit: without a terminal the wrapper
// goes on and renews.
func TestACommandThatIsStoppedElsewhereKeepsItsPermit(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		cmd := s.command("run", "x", "-n", "1", "--ttl", "4s", "--", "sh", "-c", "echo $$; exec cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		p := startCommand(t, cmd)
		pid, err := strconv.Atoi(p.line())
		if err != nil {
			t.Fatal(err)
		}
		syscall.Kill(pid, syscall.SIGSTOP)
		s.expect(75, nil, "run", "x", "--wait", "5s", "--", "true") // longer than the TTL
		p.Signal(syscall.SIGCONT)                                   // is passed on
		p.in.Close()
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d\n%s", code, p.err.text())
		}
	})
}

// TestWhoLosesItsLeaseIsEndedBeforeOthersAreLetIn, with all that it has started.
func TestWhoLosesItsLeaseIsEndedBeforeOthersAreLetIn(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // the command is ended after 10 s: a busy machine has 5 s to do so
	const beat = `beat() { while true; do date >"$1/beat"; sleep 0.02; done; }; `
	for name, c := range map[string]struct{ script, says string }{
		"willing":                {beat + `trap 'echo told >&2; exit 0' TERM; beat "$1" & echo ready; while true; do wait; done`, "told"},
		"unwilling":              {beat + `trap '' TERM; beat "$1" & echo ready; while true; do wait; done`, "is killed"},
		"what it started is not": {beat + `(trap '' TERM; beat "$1") & echo ready; wait`, "has ended with code 143"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := onOwnRedis(t)
			directory := t.TempDir()
			p := s.start("run", "x", "-n", "1", "--ttl", ttl.String(), "--", "sh", "-c", c.script, "sh", directory)
			p.line()
			paused := time.Now()
			server.Pause()
			p.silent()
			if code := p.wait(); code != 76 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range []string{c.says, "lease lost", "ending the command"} {
				if said := p.err.text(); !strings.Contains(said, want) || strings.Contains(said, "sema: sema:") {
					t.Errorf("it does not say %q but\n%s", want, said)
				}
			}
			last, err := os.Stat(filepath.Join(directory, "beat"))
			if err != nil {
				t.Fatal(err)
			}
			// The store received its last heartbeat before it was paused.
			if beyond := last.ModTime().Sub(paused); beyond > ttl {
				t.Errorf("it was at work %v after its last heartbeat", beyond)
			}
			server.Continue()
			s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
		})
	}
}

// TestAPermitThatIsTakenAwayEndsItsCommand, which is told by whom and why.
func TestAPermitThatIsTakenAwayEndsItsCommand(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		p := s.start("run", "x", "-n", "1", "--", "sh", "-c", `echo "$SEMA_LEASE"; exec sleep 100`)
		lease := p.line()
		s.expect(1, []string{`"x" has no lease 5`}, "revoke", "x", "5")
		s.expect(64, []string{"want a number"}, "revoke", "x", "it")
		s.must("revoke", "x", lease, "--why", "stuck since noon")
		if code := p.wait(); code != 76 {
			t.Errorf("exit code %d", code)
		}
		if said := p.err.text(); !strings.Contains(said, "revoked by ") || !strings.Contains(said, "stuck since noon") {
			t.Errorf("it says\n%s", said)
		}
		p.silent()
		s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
	})
}

// TestAnAcquireThatIsInterruptedLeavesNothing in line, and holds nothing.
func TestAnAcquireThatIsInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		holder := holding(s, "x", "-n", "1", "--ttl", "1h") // what is left would be there for long
		p := s.start("acquire", "x")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
		p.Signal(os.Interrupt)
		if code := p.wait(); code != 128+2 {
			t.Errorf("exit code %d\n%s", code, p.err.text())
		}
		if got := s.show("x"); got.Waiting != 0 {
			t.Errorf("in line is %+v", got.Waiters)
		}
		holder.in.Close()
		holder.wait()
		if got := s.show("x"); got.InUse != 0 {
			t.Errorf("held by %+v", got.Holders)
		}
	})
}
