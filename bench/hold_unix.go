//go:build linux || freebsd

package main

import (
	"syscall"
	"time"
)

// hold passes so much time, and little more. time.Sleep in a process that is
// otherwise idle ends with a whole millisecond of the poller's: half a millisecond
// late, which in a queue is as if permits were held for longer.
func hold(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}
