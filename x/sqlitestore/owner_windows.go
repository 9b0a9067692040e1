package sqlitestore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file as long as it is open. The system drops the lock when the process
// ends, however it ends. It reports false if another process has the lock. It locks a
// byte far beyond the text, so that other processes can read the text.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) { windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()) }

// lockedByte returns an offset beyond the end of any database, because locks are
// mandatory on Windows.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func tryLockDatabase(f *os.File) (bool, error) { return tryLock(f) }

func unlockDatabase(f *os.File) { unlock(f) }

// hardLinks returns the number of hard links of a file, and its file index.
func hardLinks(f *os.File, _ os.FileInfo) (links, number uint64) {
	var about windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &about) != nil {
		return 1, 0
	}
	return uint64(about.NumberOfLinks), uint64(about.FileIndexHigh)<<32 | uint64(about.FileIndexLow)
}
