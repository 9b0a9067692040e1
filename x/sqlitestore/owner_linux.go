package sqlitestore

import (
	"errors"
	"io"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryLockDatabase locks a byte beyond the end of any database with an open file
// description lock (F_OFD_SETLK). Unlike a POSIX lock it is kept when SQLite closes
// descriptors of the same file, and it does not overlap SQLite's ranges. It reports
// false if another process has the lock.
func tryLockDatabase(f *os.File) (bool, error) {
	err := lockByte(f, unix.F_WRLCK)
	switch {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES):
		return false, nil
	case errors.Is(err, syscall.EINVAL): // a kernel without these locks
		return true, nil
	}
	return err == nil, err
}

func unlockDatabase(f *os.File) { lockByte(f, unix.F_UNLCK) }

func lockByte(f *os.File, kind int16) error {
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: math.MaxInt64 - 1, Len: 1})
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
