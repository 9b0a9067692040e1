package fleet

import (
	"syscall"
	"unsafe"

	"github.com/sema-go/sema/fleet/protocol"
)

// bootClock returns the time of CLOCK_BOOTTIME, which continues while the machine sleeps,
// as the store's clock does. Otherwise a lease that expired during the sleep would seem
// live.
func bootClock() protocol.Micros {
	const bootTime = 7
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&now)), 0)
	return protocol.Micros(now.Nano() / 1000)
}
