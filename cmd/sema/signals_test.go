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

// The scripts count their turns before they report that they are ready: a signal to the group also
// ends the process that counts.

func TestRun_SignalsReachTheWholeGroup(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--", "sh", "-c", `
		report() { trap "sleep 60 & echo $1" USR1; echo ready; for n in $turns; do sleep 0.02; done; }
		turns=$(seq 3000); report child & report parent`)
	p.line()
	p.line()
	p.Signal(syscall.SIGUSR1)
	if first, second := p.line(), p.line(); min(first, second) != "child" || max(first, second) != "parent" {
		t.Errorf("output %q and %q", first, second)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
	p.waitClosed() // including the processes that it has started
}

func TestRun_CommandHandlesASignal(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--", "sh", "-c", `trap 'echo bye; exit 3' INT; turns=$(seq 3000); echo ready; for n in $turns; do sleep 0.02; done`)
	p.line()
	p.Signal(os.Interrupt)
	if got, code := p.line(), p.wait(); got != "bye" || code != 3 {
		t.Errorf("output %q, exit code %d", got, code)
	}
}

func TestRun_KilledAfterATimeout(t *testing.T) {
	t.Parallel()
	p := onHost(t).start("run", "x", "--kill-after", "200ms", "--", "sh", "-c", `trap '' TERM; turns=$(seq 3000); sleep 60 & echo ready; for n in $turns; do wait; sleep 0.02; done`)
	p.line()
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 128+9 {
		t.Errorf("exit code %d\n%s", code, p.err.text())
	}
	p.waitClosed()
}

func TestRun_SignalEndsAWait(t *testing.T) {
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
		eventually(t, "no acquire waits", waiting("0"))
	})
}

// TestRun_IgnoredSignalsStayIgnored checks that 'nohup sema run …' behaves like 'sema run … nohup'.
func TestRun_IgnoredSignalsStayIgnored(t *testing.T) {
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

// TestRun_CommandKeepsThePermitOfAKilledWrapper checks that on one machine the command holds the
// permit as well.
func TestRun_CommandKeepsThePermitOfAKilledWrapper(t *testing.T) {
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
	p.waitClosed()
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
}

// TestRun_CommandEndsWithItsWrapper checks that a command is killed with its wrapper over a store:
// no process would renew the lease.
func TestRun_CommandEndsWithItsWrapper(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the Linux kernel supports this")
	}
	t.Parallel()
	s := onRedis(t)
	p := s.start("run", "x", "-n", "1", "--ttl", "3s", "--", "sh", "-c", "echo ready; exec sleep 100")
	p.line()
	p.Kill()
	p.waitClosed()
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
}

// TestRun_StoppedCommandKeepsItsPermit checks that without a terminal the wrapper of a stopped
// command continues and renews.
func TestRun_StoppedCommandKeepsItsPermit(t *testing.T) {
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
		p.Signal(syscall.SIGCONT)                                   // passed on to the command
		p.in.Close()
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d\n%s", code, p.err.text())
		}
	})
}

// TestRun_EndsTheCommandBeforeOthersAreAdmitted checks that a command whose lease is lost is ended
// before another holder is admitted, with all processes that it has started.
func TestRun_EndsTheCommandBeforeOthersAreAdmitted(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // the command is ended after 10 s: a busy machine has 5 s to do so
	const beat = `beat() { while true; do date >"$1/beat"; sleep 0.02; done; }; `
	for name, c := range map[string]struct{ script, want string }{
		"a command that ends on SIGTERM":       {beat + `trap 'echo notified >&2; exit 0' TERM; beat "$1" & echo ready; while true; do wait; done`, "notified"},
		"a command that ignores SIGTERM":       {beat + `trap '' TERM; beat "$1" & echo ready; while true; do wait; done`, "killing the command"},
		"a child process that ignores SIGTERM": {beat + `(trap '' TERM; beat "$1") & echo ready; wait`, "has ended with code 143"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := onOwnRedis(t)
			directory := t.TempDir()
			p := s.start("run", "x", "-n", "1", "--ttl", ttl.String(), "--", "sh", "-c", c.script, "sh", directory)
			p.line()
			paused := time.Now()
			server.Pause()
			p.waitClosed()
			if code := p.wait(); code != 76 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range []string{c.want, "lease lost", "ending the command"} {
				if stderr := p.err.text(); !strings.Contains(stderr, want) || strings.Contains(stderr, "sema: sema:") {
					t.Errorf("no %q in stderr:\n%s", want, stderr)
				}
			}
			last, err := os.Stat(filepath.Join(directory, "beat"))
			if err != nil {
				t.Fatal(err)
			}
			// The store received its last heartbeat before it was paused.
			if beyond := last.ModTime().Sub(paused); beyond > ttl {
				t.Errorf("the command ran for %v after its last heartbeat", beyond)
			}
			server.Continue()
			s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
		})
	}
}

// TestRevoke_EndsTheCommand checks that a revoked command is ended, and that it reports the operator
// and the reason.
func TestRevoke_EndsTheCommand(t *testing.T) {
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
		if stderr := p.err.text(); !strings.Contains(stderr, "revoked by ") || !strings.Contains(stderr, "stuck since noon") {
			t.Errorf("stderr:\n%s", stderr)
		}
		p.waitClosed()
		s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true")
	})
}

// TestAcquire_InterruptLeavesNothing checks that an interrupted acquire is neither queued nor granted.
func TestAcquire_InterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		holder := holding(s, "x", "-n", "1", "--ttl", "1h") // leftovers would stay for long
		p := s.start("acquire", "x")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
		p.Signal(os.Interrupt)
		if code := p.wait(); code != 128+2 {
			t.Errorf("exit code %d\n%s", code, p.err.text())
		}
		if got := s.show("x"); got.Waiting != 0 {
			t.Errorf("queued: %+v", got.Waiters)
		}
		holder.in.Close()
		holder.wait()
		if got := s.show("x"); got.InUse != 0 {
			t.Errorf("held by %+v", got.Holders)
		}
	})
}
