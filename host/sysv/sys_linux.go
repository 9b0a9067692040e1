//go:build amd64 || arm64 || riscv64 || loong64

package sysv

import (
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"github.com/sema-go/sema"
)

// The system calls, one function each. They return the errno as the error.

// From <sys/ipc.h> and <sys/sem.h>.
const (
	ipcCreate    = 0o1000
	ipcExclusive = 0o2000
	ipcNoWait    = 0o4000

	ipcRemove = 0
	ipcSet    = 1
	ipcStat   = 2
	getAll    = 13
	setValue  = 16
	setAll    = 17
)

// A semQuery is a command of semctl that returns a number.
type semQuery uintptr

const (
	queryPid            semQuery = 11
	queryValue          semQuery = 12
	queryWaitingForRise semQuery = 14
	queryWaitingForZero semQuery = 15
)

func semCreate(key Key, n int, mode fs.FileMode) (int, error) {
	return semget(key, n, ipcCreate|ipcExclusive|int(mode.Perm()))
}

func semLookup(key Key) (int, error) { return semget(key, 0, 0) }

func semget(key Key, n, flags int) (int, error) {
	id, _, errno := syscall.Syscall(syscall.SYS_SEMGET, uintptr(key), uintptr(n), uintptr(flags))
	if errno != 0 {
		return 0, errno
	}
	return int(id), nil
}

// semTry executes the operations, or fails with errWouldWait.
func semTry(id int, ops []sembuf) error {
	for i := range ops {
		ops[i].flags |= ipcNoWait
	}
	errno := semtimedop(id, ops, nil)
	for i := range ops {
		ops[i].flags &^= ipcNoWait
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// semtimedop executes the operations. It waits at most for timeout, or without limit if
// timeout is nil.
func semtimedop(id int, ops []sembuf, timeout *syscall.Timespec) syscall.Errno {
	_, _, errno := syscall.Syscall6(syscall.SYS_SEMTIMEDOP, uintptr(id), uintptr(unsafe.Pointer(&ops[0])), uintptr(len(ops)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	return errno
}

func semQueryNumber(id, num int, query semQuery) (int, error) {
	result, _, errno := syscall.Syscall6(syscall.SYS_SEMCTL, uintptr(id), uintptr(num), uintptr(query), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(result), nil
}

func semSetValue(id, num, value int) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_SEMCTL, uintptr(id), uintptr(num), setValue, uintptr(value), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func semGetAll(id, n int) ([]int, error) {
	raw := make([]uint16, n)
	if err := semctl(id, getAll, unsafe.Pointer(&raw[0])); err != nil {
		return nil, err
	}
	values := make([]int, n)
	for i, v := range raw {
		values[i] = int(v)
	}
	return values, nil
}

func semSetAll(id int, values []int) error {
	raw := make([]uint16, len(values))
	for i, v := range values {
		raw[i] = uint16(v)
	}
	return semctl(id, setAll, unsafe.Pointer(&raw[0]))
}

func semRemove(id int) error { return semctl(id, ipcRemove, nil) }

// ipcPerm is struct ipc64_perm, which is the same on all supported architectures.
// semidDS, struct semid64_ds, differs.
type ipcPerm struct {
	key                  int32
	uid, gid, cuid, cgid uint32
	mode                 uint32
	seq                  uint16
	_                    uint16
	_, _                 uint64
}

func semStat(id int) (Info, error) {
	var ds semidDS
	if err := semctl(id, ipcStat, unsafe.Pointer(&ds)); err != nil {
		return Info{}, err
	}
	return Info{
		ID: id, Key: Key(ds.perm.key), Semaphores: int(ds.nsems), Mode: fs.FileMode(ds.perm.mode).Perm(),
		UID: int(ds.perm.uid), GID: int(ds.perm.gid), CreatorUID: int(ds.perm.cuid), CreatorGID: int(ds.perm.cgid),
		LastOp: timeOf(ds.otime), Changed: timeOf(ds.ctime),
	}, nil
}

func semChange(id int, owner ownership) error {
	ds := semidDS{perm: ipcPerm{uid: uint32(owner.uid), gid: uint32(owner.gid), mode: uint32(owner.mode)}}
	return semctl(id, ipcSet, unsafe.Pointer(&ds))
}

func semctl(id int, command uintptr, arg unsafe.Pointer) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_SEMCTL, uintptr(id), 0, command, uintptr(arg), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func readKernelFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &sema.Error{Op: "read", Err: err, Advice: "check that /proc is mounted, and the kernel is built with CONFIG_SYSVIPC"}
	}
	return string(text), nil
}

func fileIdentity(path string) (dev, ino uint64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Dev, stat.Ino, nil
}
