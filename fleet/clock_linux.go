package fleet

import (
	"syscall"
	"unsafe"

	"github.com/sema-go/sema/fleet/protocol"
)

// bootClock goes on while the machine sleeps, as the store's does: a lease
// must not seem to live because its holder slept through its end.
func bootClock() protocol.Micros {
	const bootTime = 7
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&now)), 0)
	return protocol.Micros(now.Nano() / 1000)
}
