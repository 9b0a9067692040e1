//go:build darwin || freebsd || netbsd || openbsd || dragonfly || (linux && sema_portable)

package host

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Commands for POSIX record locks, which belong to the process; it has each file open once.
const (
	getLock = syscall.F_GETLK
	setLock = syscall.F_SETLK
)

const canInherit = false

const canWake = false // waitWord polls

func fcntlLock(fd, cmd int, lock *syscall.Flock_t) error {
	return syscall.FcntlFlock(uintptr(fd), cmd, lock)
}

// wordPoll is the interval at which waitWord polls, for lack of a futex.
const wordPoll = 2 * time.Millisecond

func waitWord(word *atomic.Uint32, seen uint32, d time.Duration) {
	for end := time.Now().Add(d); word.Load() == seen && time.Now().Before(end); {
		time.Sleep(wordPoll)
	}
}

// wakeWord does nothing: waitWord polls. It cannot know whether a thread slept.
func wakeWord(*atomic.Uint32) bool { return false }

func reserve(fd int, at, n int64) error { return grow(fd, at+n) }

func writtenParts(int, int64, int64) ([]part, bool) { return nil, false }

// lockAgainstCleaners does nothing: flock and record locks conflict with each other on
// these systems.
func lockAgainstCleaners(int) {}

func unlockAgainstCleaners(int) {}

// clock returns the time of day: Go offers no other clock that processes share. A step
// of the time of day may change the order of waiters, while a process at the head of the
// queue is stopped.
func clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

func rejectNetwork(int) error { return nil }

func namespaceOf() uint32 { return 0 }

func startOf(int) uint64 { return 0 }

func commandOf(int) string { return "" }

func openProcess(int) (*os.File, error) { return nil, errors.ErrUnsupported }

func awaitEnd(*os.File) bool { return false }
