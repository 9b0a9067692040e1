//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A fileID identifies a file independently of its path.
type fileID struct{ device, inode uint64 }

func identify(info fs.FileInfo) fileID {
	stat := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(stat.Dev), uint64(stat.Ino)}
}

func ownerOf(info fs.FileInfo) (uid, gid uint32) {
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Uid, stat.Gid
}

// openFlags makes open fail on a symbolic link. Go already sets O_CLOEXEC, so that
// children do not inherit the descriptor.
const openFlags = syscall.O_NOFOLLOW

func supported() error { return nil }

func mapShared(fd, size int) ([]byte, error) {
	return syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmap(memory []byte) { syscall.Munmap(memory) }

// A lockKind is the type of a lock: none, shared or exclusive.
type lockKind int16

const (
	none      lockKind = syscall.F_UNLCK
	shared    lockKind = syscall.F_RDLCK
	exclusive lockKind = syscall.F_WRLCK
)

// tryLock locks n bytes of the file starting at at, or changes their lock. It reports
// false if another process has a conflicting lock.
func tryLock(fd int, kind lockKind, at, n int64) (bool, error) {
	err := fcntlLock(fd, setLock, &syscall.Flock_t{Type: int16(kind), Start: at, Len: n})
	switch err {
	case nil:
		return true, nil
	case syscall.EAGAIN, syscall.EACCES:
		return false, nil
	case syscall.ENOLCK:
		return false, os.NewSyscallError("fcntl: the system is out of locks", err)
	}
	return false, os.NewSyscallError("fcntl", err)
}

// unlock drops the locks on n bytes. For locked bytes it fails only if the kernel has
// no memory; the lock is then kept until the process ends.
func unlock(fd int, at, n int64) { tryLock(fd, none, at, n) }

// conflict reports whether another process has a lock on any of the n bytes.
func conflict(fd int, at, n int64) (found bool, err error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: at, Len: n}
	if err := fcntlLock(fd, getLock, &lock); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	return lock.Type != syscall.F_UNLCK, nil
}

func processName() string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return filepath.Base(path)
}

// grow extends the file to a size. It writes the last byte instead of calling
// ftruncate, so that two concurrent calls do not truncate each other's part.
func grow(fd int, size int64) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if stat.Size >= size {
		return nil
	}
	_, err := syscall.Pwrite(fd, []byte{0}, size-1)
	return os.NewSyscallError("pwrite", err)
}
