//go:build linux && (386 || arm || mips || mipsle) && !sema_portable

package host

import "syscall"

// The older call has offsets of 32 bits.
const fcntlCall = syscall.SYS_FCNTL64
