//go:build unix && !linux

package storetest

import "syscall"

// endWithParent does nothing: without Pdeathsig, servers outlive a killed test.
func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// awaitStop does nothing: it assumes that a sent signal has arrived.
func awaitStop(int) error { return nil }
