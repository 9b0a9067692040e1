package storetest

import (
	"errors"
	"os"
	"syscall"
)

func endWithParent(a *syscall.SysProcAttr, sig syscall.Signal) { a.Pdeathsig = sig }

// awaitStop waits until all threads of a child are stopped. It does not consume
// the child's exit status.
func awaitStop(pid int) error {
	const byPid, stopped = 1, 2 // P_PID, WSTOPPED
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), 0, stopped, 0, 0)
		if err == 0 || errors.Is(err, syscall.ECHILD) {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}
