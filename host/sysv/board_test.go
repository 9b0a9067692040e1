//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sema-go/sema/internal/proctest"
)

// A board is memory that processes share: one word that can be read atomically, and a
// counter for each process.
type board struct {
	path   string
	word   *atomic.Uint64
	counts *[8]atomic.Uint64
}

const boardSize = 4096

func newBoard(t *testing.T) *board {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board")
	must(t, os.WriteFile(path, make([]byte, boardSize), 0o600))
	b, err := mapBoard(path)
	must(t, err)
	return b
}

func openBoard(c *proctest.Child, path string) *board {
	b, err := mapBoard(path)
	c.Must(err)
	return b
}

// mapBoard maps a board. The mapping stays until the process ends.
func mapBoard(path string) (*board, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, boardSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &board{path, (*atomic.Uint64)(unsafe.Pointer(&memory[0])), (*[8]atomic.Uint64)(unsafe.Pointer(&memory[64]))}, nil
}

func (b *board) add(delta uint64) uint64 { return b.word.Add(delta) }
