//go:build !386 && !arm && !mips && !mipsle

package posix

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// DisableWaitv makes s wait without futex_waitv, as on older kernels.
func (s *Semaphore) DisableWaitv() { s.memory.pollOnly.Store(true) }

// Queued returns the number of goroutines queued at the turnstile.
func (s *Semaphore) Queued() int {
	t := &s.memory.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue.Len()
}

// Interrupted reports whether interrupt was called and the waiter has not noticed yet.
func (s *Semaphore) Interrupted() bool { return atomic.LoadUint32(&s.memory.interrupted) != 0 }

// Sleepers returns the number of threads, in all processes, that sleep on the value in
// the kernel. It requeues them all to the same futex, which neither moves nor wakes a
// thread but counts them. It returns 0 if the value is not 0.
func (s *Semaphore) Sleepers() int {
	const compareRequeue = 4
	value := uintptr(unsafe.Pointer(s.memory.value))
	n, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, value, compareRequeue, 0, allWaiters, value, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// DraftPattern matches the files of semaphores that are being created.
const DraftPattern = directory + "/.sema-posix-*"

// FileOf returns the path of a named semaphore.
func FileOf(name string) string { return fileOf(name) }
