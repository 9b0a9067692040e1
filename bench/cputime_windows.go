package main

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	process, err := syscall.GetCurrentProcess()
	must(err)
	var created, exited, kernel, user syscall.Filetime
	must(syscall.GetProcessTimes(process, &created, &exited, &kernel, &user))
	ticks := func(t syscall.Filetime) time.Duration {
		return time.Duration(t.HighDateTime)<<32 | time.Duration(t.LowDateTime)
	}
	return (ticks(kernel) + ticks(user)) * 100 // a tick is 100 ns
}
