//go:build linux || freebsd

package main

import (
	"syscall"
	"time"
)

// hold sleeps for d and little longer. In an otherwise idle process, time.Sleep
// rounds up to a millisecond of the poller: it returns half a millisecond late,
// which in a queue acts like a longer hold.
func hold(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}
