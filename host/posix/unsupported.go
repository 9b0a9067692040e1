//go:build !linux || 386 || arm || mips || mipsle

package posix

import (
	"errors"
	"io/fs"
	"runtime"
)

// On these systems every constructor fails, so nothing else is ever called.

func supported(op string) error {
	return newError(op, "", errors.ErrUnsupported, "package posix needs 64-bit Linux, this is "+runtime.GOOS+"/"+runtime.GOARCH)
}

type inode struct{}

func openNamed(op, _ string) (*memory, inode, error) { return nil, inode{}, supported(op) }

func createNamed(op, _ string, _ fs.FileMode, _ uint32, _ bool) (*memory, inode, error) {
	return nil, inode{}, supported(op)
}

func newUnnamed(uint32) (*memory, error) { return nil, supported("new") }
func unlinkNamed(op, _ string) error     { return supported(op) }
func unlinkIfSame(string, inode) error   { return supported("close") }
func listNamed() ([]Info, error)         { return nil, supported("list") }
func (m *memory) block() error           { return supported("wait") }
func (m *memory) wake(int)               {}
func (m *memory) interrupt()             {}
