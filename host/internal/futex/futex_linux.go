// Package futex waits on words in memory shared between processes, by means of the
// kernel's futex calls. Every wait may end early (a spurious wake-up): callers must
// check the word again.
package futex

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

const (
	opWait        = 0
	opWake        = 1
	opPrivate     = 128
	sysFutexWaitv = 449 // on mips the number differs, and this one returns ENOSYS
	size32        = 2
)

// Wait sleeps while *addr is want, until a [Wake], the timeout (0: none) or a spurious
// wake-up. It blocks a thread.
func Wait(addr *uint32, want uint32, timeout time.Duration) error {
	var ts *syscall.Timespec
	if timeout > 0 {
		t := syscall.NsecToTimespec(int64(timeout))
		ts = &t
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), opWait, uintptr(want), uintptr(unsafe.Pointer(ts)), 0, 0)
	return unexpected("futex wait", errno)
}

// Wake wakes up to n threads that sleep on addr, in any process, and returns the number
// of threads that it woke.
func Wake(addr *uint32, n int) int { return wake(addr, n, opWake) }

// WakePrivate wakes up to n threads that sleep on addr, the private word of [WaitEither].
func WakePrivate(addr *uint32, n int) int { return wake(addr, n, opWake|opPrivate) }

func wake(addr *uint32, n int, op uintptr) int {
	woken, _, errno := syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), op, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0 // the memory is no longer mapped, so no thread sleeps on it
	}
	return int(woken)
}

// WaitEither sleeps while *shared is want and *private, which belongs to this process
// alone, is zero. It fails with [errors.ErrUnsupported] on kernels before 5.16 and in
// sandboxes that forbid the call.
func WaitEither(shared *uint32, want uint32, private *uint32) error {
	type waiter struct {
		val   uint64
		addr  uint64
		flags uint32
		_     uint32
	}
	waiters := [2]waiter{
		{val: uint64(want), addr: uint64(uintptr(unsafe.Pointer(shared))), flags: size32},
		{val: 0, addr: uint64(uintptr(unsafe.Pointer(private))), flags: size32 | opPrivate},
	}
	_, _, errno := syscall.Syscall6(sysFutexWaitv, uintptr(unsafe.Pointer(&waiters)), uintptr(len(waiters)), 0, 0, 0, 0)
	if errno == syscall.ENOSYS || errno == syscall.EPERM {
		return fmt.Errorf("futex_waitv: %w", errors.ErrUnsupported)
	}
	return unexpected("futex_waitv", errno)
}

// unexpected returns an error for errno, or nil if the caller only has to check the
// word again: woken, already changed, timed out or interrupted.
func unexpected(call string, errno syscall.Errno) error {
	switch errno {
	case 0, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EINTR:
		return nil
	}
	return fmt.Errorf("%s: %w", call, errno)
}
