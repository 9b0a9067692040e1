//go:build linux && !(386 || arm || mips || mipsle) && !sema_portable

package host

import "syscall"

const fcntlCall = syscall.SYS_FCNTL
