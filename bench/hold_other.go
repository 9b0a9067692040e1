//go:build !(linux || freebsd)

package main

import "time"

// hold sleeps for d.
func hold(d time.Duration) { time.Sleep(d) }
