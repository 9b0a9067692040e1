//go:build unix

package main

import (
	"os"
	"syscall"
)

// replace replaces this process: its number, terminal and signals stay.
func replace(path string, args []string) error {
	return syscall.Exec(path, append([]string{os.Args[0]}, args...), os.Environ())
}
