//go:build darwin || freebsd || netbsd || openbsd || dragonfly || (linux && sema_portable)

package host

import (
	"sync/atomic"
	"syscall"
	"time"
)

// POSIX record locks: of the process, which has each file open once.
const (
	getLock = syscall.F_GETLK
	setLock = syscall.F_SETLK
)

const canInherit = false

func fcntlLock(fd, cmd int, lock *syscall.Flock_t) error {
	return syscall.FcntlFlock(uintptr(fd), cmd, lock)
}

// look is the poll interval of a word where no futex can wake a process.
const look = 2 * time.Millisecond

func waitWord(word *atomic.Uint32, seen uint32, d time.Duration) {
	for end := time.Now().Add(d); word.Load() == seen && time.Now().Before(end); {
		time.Sleep(look)
	}
}

// wakeWord does not know whether a thread slept.
func wakeWord(*atomic.Uint32) bool { return false }

func reserve(fd int, at, n int64) error { return grow(fd, at+n) }

// keepFromCleaners does nothing: flock and record locks are of one kind here,
// and would be in each other's way.
func keepFromCleaners(int) {}

func dropKeep(int) {}

// clock is the time of day: processes share no other that Go can ask for. A
// step of it may cost order, for as long as a process at the head is stopped.
func clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

func rejectNetwork(int) error { return nil }

func namespaceOf() uint32 { return 0 }

func startOf(int) uint64 { return 0 }

func commandOf(int) string { return "" }
