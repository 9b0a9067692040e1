//go:build !386 && !arm && !mips && !mipsle

package posix

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// SleepInSlices makes waiting go without futex_waitv, as on older kernels.
func (s *Semaphore) SleepInSlices() { s.memory.slices.Store(true) }

// Queued is how many goroutines stand at the turnstile.
func (s *Semaphore) Queued() int {
	t := &s.memory.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.line.Len()
}

// Stirred says whether the sleeper was told to look up and has not.
func (s *Semaphore) Stirred() bool { return atomic.LoadUint32(&s.memory.nudge) != 0 }

// Sleepers is how many threads, in all processes, the kernel has asleep on the
// value. It asks to requeue them all to where they are, which moves and wakes
// nobody but counts them. It is 0 when the value is not.
func (s *Semaphore) Sleepers() int {
	const compareRequeue = 4
	value := uintptr(unsafe.Pointer(s.memory.value))
	n, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, value, compareRequeue, 0, everybody, value, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// DraftPattern matches the files of semaphores that are being created.
const DraftPattern = directory + "/.sema-posix-*"

// FileOf is the file of a named semaphore.
func FileOf(name string) string { return fileOf(name) }
