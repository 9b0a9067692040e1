//go:build linux && !sema_portable

package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/sema-go/sema/host/internal/futex"
	"github.com/sema-go/sema/internal/monotonic"
)

// Commands for open-file-description locks, which belong to the open file, not to the
// process.
const (
	getLock = 36
	setLock = 37
)

const canInherit = true

// canWake: wakeWord wakes a thread that sleeps in waitWord at once.
const canWake = true

// fcntlLock calls fcntl without notifying the scheduler: the call does not block, and
// the notification would take half its time.
func fcntlLock(fd, cmd int, lock *syscall.Flock_t) error {
	if _, _, errno := syscall.RawSyscall(fcntlCall, uintptr(fd), uintptr(cmd), uintptr(unsafe.Pointer(lock))); errno != 0 {
		return errno
	}
	return nil
}

func waitWord(word *atomic.Uint32, seen uint32, d time.Duration) {
	if futex.Wait((*uint32)(unsafe.Pointer(word)), seen, d) != nil {
		time.Sleep(d)
	}
}

// wakeWord reports whether a thread slept.
func wakeWord(word *atomic.Uint32) bool {
	return futex.Wake((*uint32)(unsafe.Pointer(word)), 1) > 0
}

const (
	sysPidfdOpen  = 434 // on mips the number differs, and this one returns ENOSYS
	pidfdNonblock = syscall.O_NONBLOCK
)

// openProcess returns a descriptor of a process, for awaitEnd. It fails with
// [os.ErrProcessDone] if there is no such process, and with [errors.ErrUnsupported] on
// kernels before 5.10, in sandboxes that forbid the call, and without free descriptors.
func openProcess(pid int) (*os.File, error) {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), pidfdNonblock, 0)
	switch errno {
	case 0:
		return os.NewFile(fd, "pidfd"), nil
	case syscall.ESRCH:
		return nil, os.ErrProcessDone
	}
	return nil, fmt.Errorf("pidfd_open: %w (%w)", errno, errors.ErrUnsupported)
}

// awaitEnd waits until the process of the descriptor has ended, and reports false if
// the descriptor was closed before. It blocks no thread: the descriptor of a process that
// has ended is readable.
func awaitEnd(process *os.File) bool {
	raw, err := process.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		ended = isReadable(fd)
		return ended
	})
	return ended && err == nil
}

func isReadable(fd uintptr) bool {
	const pollIn = 1
	poll := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: pollIn}
	var none syscall.Timespec
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	return n == 1
}

// reserve allocates disk space for a part of the file. If the filesystem does not
// support that, reserve extends the file and assumes that there is space.
func reserve(fd int, at, n int64) error {
	for {
		switch err := syscall.Fallocate(fd, 0, at, n); err {
		case syscall.EINTR:
		case syscall.EOPNOTSUPP:
			return grow(fd, at+n)
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// Arguments of lseek that find what a file contains.
const (
	seekData = 3
	seekHole = 4
)

// fewWritten bounds the bytes that writtenParts returns.
const fewWritten = 1 << 16

// writtenParts returns the parts of a file that are not holes, which read as zeros. ok is false
// if they are many, or if the filesystem does not distinguish them.
func writtenParts(fd int, from, to int64) (written []part, ok bool) {
	var sum int64
	for from < to {
		data, err := syscall.Seek(fd, from, seekData)
		if err == syscall.ENXIO || err == nil && data >= to { // there is no more data
			return written, true
		}
		hole, err := syscall.Seek(fd, data, seekHole)
		if err != nil || hole <= data {
			return nil, false
		}
		hole = min(hole, to)
		if sum += hole - data; sum > fewWritten {
			return nil, false
		}
		written, from = append(written, part{data, hole}), hole
	}
	return written, true
}

// lockAgainstCleaners takes a shared flock, so that systemd-tmpfiles does not delete
// the file, however old it is: it skips files that it cannot lock. Errors are ignored:
// without the lock the file is only subject to deletion by age.
func lockAgainstCleaners(fd int) { syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) }

func unlockAgainstCleaners(fd int) { syscall.Flock(fd, syscall.LOCK_UN) }

// clock returns the monotonic time, which all processes of the machine share and which
// steps of the time of day do not affect. Processes in other time namespaces do not
// share it: among them only the order of waiters may be lost.
//
// Go reads the same clock without a system call, but counts from the start of the
// process. In a testing/synctest bubble it returns another time, which is negative.
func clock() time.Duration {
	if d := monotonic.Since(); d >= 0 {
		return clockEpoch() + d
	}
	return readClock()
}

// clockEpoch returns the time of the epoch of package monotonic by the clock.
var clockEpoch = sync.OnceValue(func() (epoch time.Duration) {
	for range 100 { // unless the process was interrupted between the readings
		before := readClock()
		epoch = before - monotonic.Since()
		if readClock()-before < time.Millisecond {
			break
		}
	}
	return epoch
})

func readClock() time.Duration {
	const monotonic = 1
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}

// networks contains the filesystems on which another machine might hold the lock, or
// memory is not shared, by their magic numbers.
var networks = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x01021997: "9P",
	0x65735546: "FUSE", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x5346414f: "AFS",
	0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x47504653: "GPFS", 0x786f4256: "VirtualBox", 0x61756673: "aufs",
}

func rejectNetwork(fd int) error {
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &stat); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if name := networks[uint32(stat.Type)]; name != "" {
		return fmt.Errorf("%s filesystem: %w", name, errors.ErrUnsupported)
	}
	return nil
}

// namespaceOf returns the PID namespace of this process, 0 if unknown.
func namespaceOf() uint32 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	return uint32(identify(info).inode)
}

// startOf returns the start time of a process, which distinguishes processes with the
// same PID. It returns 0 if the time is unknown.
func startOf(pid int) uint64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain any character; the start time is the 20th
	// field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return start
}

func commandOf(pid int) string {
	file, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	defer file.Close()
	line, err := io.ReadAll(io.LimitReader(file, maxCommand+1)) // a command line may have megabytes
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
}
