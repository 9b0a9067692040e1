//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// Nothing below is reached: every exported function calls supported first.

func supported() error { return errors.ErrUnsupported }

type fileID struct{ path string }

func identify(fs.FileInfo) fileID { return fileID{} }

func ownerOf(fs.FileInfo) (uid, gid uint32) { return 0, 0 }

const openFlags = 0

const canInherit = false

const canWake = false

type lockKind int

const (
	none lockKind = iota
	shared
	exclusive
)

func tryLock(int, lockKind, int64, int64) (bool, error) { return false, errors.ErrUnsupported }

func unlock(int, int64, int64) {}

func conflict(int, int64, int64) (bool, error) { return false, errors.ErrUnsupported }

func mapShared(int, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}

func reserve(int, int64, int64) error { return errors.ErrUnsupported }

func writtenParts(int, int64, int64) ([]part, bool) { return nil, false }

func lockAgainstCleaners(int) {}

func unlockAgainstCleaners(int) {}

func clock() time.Duration { return 0 }

func namespaceOf() uint32 { return 0 }

func rejectNetwork(int) error { return errors.ErrUnsupported }

func waitWord(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(d) }

func wakeWord(*atomic.Uint32) bool { return false }

func startOf(int) uint64 { return 0 }

func commandOf(int) string { return "" }

func processName() string { return os.Args[0] }

func openProcess(int) (*os.File, error) { return nil, errors.ErrUnsupported }

func awaitEnd(*os.File) bool { return false }
