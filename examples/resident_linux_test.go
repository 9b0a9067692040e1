package examples_test

import (
	"os"
	"syscall"
)

// maxResident returns the most memory that a process has had, in bytes.
func maxResident(state *os.ProcessState) (bytes int64, ok bool) {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, false
	}
	return int64(usage.Maxrss) << 10, true
}
