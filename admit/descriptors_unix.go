//go:build unix

package admit

import (
	"math"
	"os"
	"syscall"
)

// descriptors returns how many descriptors the process may open, and how many are open.
func descriptors() (limit, open int64, err error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, os.NewSyscallError("getrlimit", err)
	}
	limit = int64(min(uint64(r.Cur), math.MaxInt32))
	if entries, err := os.ReadDir("/dev/fd"); err == nil { // Linux, macOS and most BSDs
		open = int64(len(entries)) - 1 // without the one that reads the directory
	}
	return limit, open, nil
}
