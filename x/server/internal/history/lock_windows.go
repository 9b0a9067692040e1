package history

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a byte of a file beyond its text, so that other processes can read the text. It
// reports false if another process has locked it.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) { _ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()) }

func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }
