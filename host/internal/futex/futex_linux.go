// Package futex waits on words in memory shared between processes, by the
// kernel's futex calls. It knows nothing of what the words mean: every wait may
// end early, and callers look again.
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
	sysFutexWaitv = 449 // on mips the number is another, and this one is answered with ENOSYS
	size32        = 2
)

// Wait sleeps while *addr is want, until a [Wake], the timeout (0: none) or
// for no reason. It blocks a thread.
func Wait(addr *uint32, want uint32, timeout time.Duration) error {
	var ts *syscall.Timespec
	if timeout > 0 {
		t := syscall.NsecToTimespec(int64(timeout))
		ts = &t
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), opWait, uintptr(want), uintptr(unsafe.Pointer(ts)), 0, 0)
	return unexpected("futex wait", errno)
}

// Wake wakes up to n sleepers on addr, in whatever process they are, and says
// how many there were.
func Wake(addr *uint32, n int) int { return wake(addr, n, opWake) }

// WakePrivate wakes the sleepers on a private word of [WaitEither].
func WakePrivate(addr *uint32, n int) int { return wake(addr, n, opWake|opPrivate) }

func wake(addr *uint32, n int, op uintptr) int {
	woken, _, errno := syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), op, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0 // the memory is not there any more, and nobody sleeps on it
	}
	return int(woken)
}

// WaitEither sleeps while *shared is want and *private, a word of this process
// alone, is zero. Kernels before 5.16, and sandboxes that forbid the call,
// answer [errors.ErrUnsupported].
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

// unexpected lets through what is a reason to look again: woken, changed
// already, timed out, interrupted.
func unexpected(call string, errno syscall.Errno) error {
	switch errno {
	case 0, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EINTR:
		return nil
	}
	return fmt.Errorf("%s: %w", call, errno)
}
