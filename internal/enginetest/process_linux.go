package enginetest

import (
	"errors"
	"os"
	"syscall"
)

func endWithParent(a *syscall.SysProcAttr, by syscall.Signal) { a.Pdeathsig = by }

// awaitStop waits until no thread of a child runs any more. It does not take from
// others the news that the child has ended.
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
