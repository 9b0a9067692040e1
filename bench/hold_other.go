//go:build !(linux || freebsd)

package main

import "time"

// hold passes so much time.
func hold(d time.Duration) { time.Sleep(d) }
