package sqlitestore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file for as long as it is open; the system unlocks it when the
// process is gone, however it went. It reports false if somebody else has it.
// What is locked is a byte far behind the text, so that others can read that.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) { windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()) }

// lockedByte is behind the end of any database: locks are mandatory here.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func tryLockDatabase(f *os.File) (bool, error) { return tryLock(f) }

func unlockDatabase(f *os.File) { unlock(f) }

// hardLinks returns how many names a file has, and its file index.
func hardLinks(f *os.File, _ os.FileInfo) (links, number uint64) {
	var about windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &about) != nil {
		return 1, 0
	}
	return uint64(about.NumberOfLinks), uint64(about.FileIndexHigh)<<32 | uint64(about.FileIndexLow)
}
