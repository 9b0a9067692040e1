//go:build unix && !solaris && !aix

package sqlitestore

import (
	"os"
	"syscall"
)

// hardLinks returns the number of hard links of a file, and its inode number.
func hardLinks(_ *os.File, info os.FileInfo) (links, number uint64) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, 0
	}
	return uint64(stat.Nlink), uint64(stat.Ino)
}
