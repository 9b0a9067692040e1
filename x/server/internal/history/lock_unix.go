//go:build unix && !solaris && !aix

package history

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file. It reports false if another process has locked it.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

// unlock drops the lock before the file is closed: a child between fork and exec has the file
// open as well.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
