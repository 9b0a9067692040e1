//go:build linux && !sema_portable

package host_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

// startWatcher starts a process whose waiters continue only when they are woken, and
// watch the holders after a time.
func startWatcher(t *testing.T, dir, name string, capacity int64, watchAfter time.Duration) *proctest.Process {
	t.Helper()
	p := proctest.Start(t, "timed", dir, name, strconv.FormatInt(capacity, 10), time.Hour.String(), time.Hour.String(), watchAfter.String())
	p.Expect("open")
	return p
}

func startHolder(t *testing.T, dir, name string, capacity int64) *proctest.Process {
	t.Helper()
	p := startUser(t, dir, name, capacity)
	p.Send("acquire 1")
	p.Expect("acquired 1")
	return p
}

// watchedBy returns the number of processes that a process watches.
func watchedBy(t *testing.T, p *proctest.Process) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", p.Pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if target, _ := os.Readlink(dir + fd.Name()); strings.Contains(target, "pidfd") {
			n++
		}
	}
	return n
}

func TestAcquire_IsWokenByTheEndOfAHolder(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	a, b := startHolder(t, dir, name, 2), startHolder(t, dir, name, 2)
	first, second := startWatcher(t, dir, name, 2, time.Millisecond), startWatcher(t, dir, name, 2, time.Millisecond)
	first.Send("acquire 2")
	awaitStats(t, sem, 2, 1)
	second.Send("acquire 1")
	awaitStats(t, sem, 2, 2)
	eventually(t, "the first waiter watches both holders", func() bool { return watchedBy(t, first) == 2 })
	if n := watchedBy(t, second); n != 0 {
		t.Errorf("the second waiter watches %d processes, want none", n)
	}
	a.End()
	b.End()
	first.Expect("acquired 2")
	eventually(t, "nothing is watched after the wait", func() bool { return watchedBy(t, first) == 0 })
}

// TestAcquire_HolderEndsBeforeItIsWatched kills the holder while its waiter starts to
// watch it, at whatever moment that is.
func TestAcquire_HolderEndsBeforeItIsWatched(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		sem, dir, name := open(t, 1)
		holder := startHolder(t, dir, name, 1)
		waiter := startWatcher(t, dir, name, 1, time.Duration(i)*2*time.Millisecond+1)
		waiter.Send("acquire 1")
		awaitStats(t, sem, 1, 1)
		holder.End()
		waiter.Expect("acquired 1")
	}
}

// TestAcquire_IsWokenAfterTheEndOfACommand checks that a waiter whose watched holder has
// ended soon notices the end of the command that inherited the permit.
func TestAcquire_IsWokenAfterTheEndOfACommand(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	wrapper := startHolder(t, dir, name, 1)
	wrapper.Send("run")
	reply := wrapper.Receive()
	command, err := strconv.Atoi(reply)
	if err != nil {
		t.Fatal(reply)
	}
	defer syscall.Kill(command, syscall.SIGKILL)
	waiter := startWatcher(t, dir, name, 1, time.Millisecond)
	waiter.Send("acquire 1")
	awaitStats(t, sem, 1, 1)
	eventually(t, "the waiter watches", func() bool { return watchedBy(t, waiter) == 1 })
	wrapper.End()
	waiter.Quiet(5 * time.Millisecond) // the command holds the permit
	syscall.Kill(command, syscall.SIGKILL)
	waiter.Expect("acquired 1")
}

// TestAcquire_PollsForHoldersOfOtherNamespaces checks that a waiter notices the end of a
// holder that it cannot watch.
func TestAcquire_PollsForHoldersOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to create namespaces")
	}
	sem, dir, name := open(t, 1)
	cmd := proctest.Command(t, "user", dir, name, "1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	holder := proctest.StartCommand(t, cmd)
	holder.Expect("open")
	holder.Send("acquire 1")
	holder.Expect("acquired 1")
	if watched, _, _ := host.Watch(sem); watched != 0 {
		t.Errorf("%d processes are watched, want none: the PID is that of another process here", watched)
	}
	got := acquiring(t, sem, 1)
	awaitStats(t, sem, 1, 1)
	holder.End()
	(<-got).Release()
}

func TestWatch_IgnoresAnotherProcessOfTheSamePID(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 200)
	host.RecordHolders(sem, 1, os.Getpid(), 1)
	if watched, again, more := host.Watch(sem); watched != 0 || !again || more {
		t.Errorf("%d watched, again %v, more %v; want none, and one more attempt: the process had ended", watched, again, more)
	}
	host.RecordHolders(sem, 1, os.Getpid(), host.Start(os.Getpid()))
	if watched, again, more := host.Watch(sem); watched != 1 || !again || more {
		t.Errorf("%d watched, again %v, more %v; want 1, and one more attempt", watched, again, more)
	}
}

func TestWatch_IsBounded(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 200)
	host.RecordHolders(sem, 200, 1000, 1)
	if found := host.HoldingProcesses(sem); found != 64 {
		t.Errorf("%d processes to watch, want 64", found)
	}
}
