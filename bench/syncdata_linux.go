package main

import (
	"os"
	"syscall"
)

// syncData waits until the content of a file is on the disk (fdatasync).
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
