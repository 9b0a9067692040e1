//go:build !linux || !(amd64 || arm64 || riscv64 || loong64)

package sysv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
)

var errUnsupported = fmt.Errorf("System V semaphores on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)

// No call returns one of these errors.
var (
	errWouldWait       = errUnsupported
	errTooManyOps      = errUnsupported
	errOutOfRange      = errUnsupported
	errNoSuchSemaphore = errUnsupported
)

type semQuery uintptr

const (
	queryPid semQuery = iota
	queryValue
	queryWaitingForRise
	queryWaitingForZero
)

func (*Set) reasonFor(error) *reason {
	return &reason{text: errUnsupported.Error(), hint: "use package host", is: []error{errUnsupported}}
}
func createReason(Key, error) *reason { return (*Set)(nil).reasonFor(nil) }

func readKernelFile(string) (string, error)            { return "", fmt.Errorf("sema: %w", errUnsupported) }
func fileIdentity(string) (dev, ino uint64, err error) { return 0, 0, errUnsupported }
func semCreate(Key, int, fs.FileMode) (int, error)     { return 0, errUnsupported }
func semLookup(Key) (int, error)                       { return 0, errUnsupported }
func semTry(int, []sembuf) error                       { return errUnsupported }
func semWait(context.Context, int, []sembuf) error     { return errUnsupported }
func semQueryNumber(int, int, semQuery) (int, error)   { return 0, errUnsupported }
func semSetValue(int, int, int) error                  { return errUnsupported }
func semGetAll(int, int) ([]int, error)                { return nil, errUnsupported }
func semSetAll(int, []int) error                       { return errUnsupported }
func semRemove(int) error                              { return errUnsupported }
func semStat(int) (Info, error)                        { return Info{}, errUnsupported }
func semChange(int, ownership) error                   { return errUnsupported }
