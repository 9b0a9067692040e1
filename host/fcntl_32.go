//go:build linux && (386 || arm || mips || mipsle) && !sema_portable

package host

import "syscall"

// SYS_FCNTL has 32-bit offsets on these architectures.
const fcntlCall = syscall.SYS_FCNTL64
