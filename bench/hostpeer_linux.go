package main

import (
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A meeting is where two processes of a scenario leave notes.
type meeting struct {
	round    atomic.Int64 // counts when a peer is about to wait, or holds
	acquired atomic.Int64 // when it was admitted, by the clock both have; 0 once that was read
}

func mapMeeting(path string) *meeting {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(err)
	defer file.Close()
	must(file.Truncate(int64(unsafe.Sizeof(meeting{}))))
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(meeting{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	return (*meeting)(unsafe.Pointer(&memory[0]))
}

// peer starts another process of a scenario.
func (h *hostBench) peer(role string, kind lockKind, number, count int, notes string) *exec.Cmd {
	self, err := os.Executable()
	must(err)
	cmd := exec.Command(self, "host-peer", role, string(kind), h.dir, strconv.Itoa(number), strconv.Itoa(count), notes)
	cmd.Stderr = os.Stderr
	must(cmd.Start())
	return cmd
}

// hostPeer is the other process of a scenario.
func hostPeer(args []string) {
	role, kind, dir := args[0], lockKind(args[1]), args[2]
	number, err := strconv.Atoi(args[3])
	must(err)
	count, err := strconv.Atoi(args[4])
	must(err)
	l := kind.open(dir, number)
	if role == "contend" {
		for range count {
			l.acquire()
			l.release()
		}
		return
	}
	notes := mapMeeting(args[5])
	if role == "hold" {
		l.acquire()
		notes.round.Add(1)
		time.Sleep(time.Hour) // until it is killed
	}
	for range count {
		notes.round.Add(1)
		l.acquire()
		notes.acquired.Store(monotonic())
		l.release()
		for notes.acquired.Load() != 0 { // until it was read, and the permit taken back
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// awaitNote sleeps until the note is at least what is wanted.
func awaitNote(note *atomic.Int64, want int64) {
	for note.Load() < want {
		time.Sleep(50 * time.Microsecond)
	}
}

// monotonic is a clock that all processes of the machine share.
func monotonic() int64 {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		must(errno)
	}
	return ts.Nano()
}
