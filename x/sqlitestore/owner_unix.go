//go:build unix && !solaris && !aix

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file for as long as it is open; the kernel unlocks it when the
// process is gone, however it went. It reports false if somebody else has it.
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

// unlock unlocks before the file is closed: a child that is just being started
// has it open as well, for a moment.
func unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// hardLinks returns how many names a file has, and its inode number.
func hardLinks(_ *os.File, info os.FileInfo) (links, number uint64) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, 0
	}
	return uint64(stat.Nlink), uint64(stat.Ino)
}
