//go:build unix && !solaris && !aix

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file as long as it is open. The kernel drops the lock when the process
// ends, however it ends. It reports false if another process has the lock.
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

// unlock drops the lock explicitly before the file is closed: a child between fork and
// exec has the file open as well.
func unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// hardLinks returns the number of hard links of a file, and its inode number.
func hardLinks(_ *os.File, info os.FileInfo) (links, number uint64) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, 0
	}
	return uint64(stat.Nlink), uint64(stat.Ino)
}
