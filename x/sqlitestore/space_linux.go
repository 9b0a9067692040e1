package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate allocates blocks beyond the end of a file, without changing its size.
func allocate(f *os.File, end, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, end, size)
}

// free returns the free bytes on the disk of a file.
func free(f *os.File) (int64, error) {
	var about unix.Statfs_t
	err := unix.Fstatfs(int(f.Fd()), &about)
	return int64(about.Bavail) * about.Bsize, err
}
