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

// A peerState is shared memory in which two processes of a scenario report
// progress.
type peerState struct {
	round    atomic.Int64 // incremented when a peer is about to wait, or holds the permit
	acquired atomic.Int64 // monotonic time of the acquire; 0 once it was read
}

// A contest is shared memory in which the processes of scenario 4-processes-on-1 count
// their permits, and record how long they waited for some, each in cache lines of its own.
type contest struct {
	over        atomic.Bool
	_           [63]byte
	contestants [contestants]struct {
		permits atomic.Int64
		timed   atomic.Int64 // acquires that were timed
		_       [48]byte
		waits   [1 << 16]time.Duration // of the first of these
	}
}

const (
	contestants = 4
	timedOf     = 16 // how many acquires there are for each that is timed
)

// compete acquires and releases until the contest is over.
func (c *contest) compete(l locker, self int) {
	own := &c.contestants[self]
	for n := 1; !c.over.Load(); n++ { // the first waits until the contest begins
		if n%timedOf != 0 {
			l.acquire()
		} else {
			began := monotonic()
			l.acquire()
			if at := own.timed.Load(); at < int64(len(own.waits)) {
				own.waits[at] = time.Duration(monotonic() - began)
				own.timed.Store(at + 1)
			}
		}
		l.release()
		own.permits.Add(1)
	}
}

// results returns the permits of all together, and the recorded waits.
func (c *contest) results() (permits int64, all []time.Duration) {
	for i := range c.contestants {
		one := &c.contestants[i]
		permits += one.permits.Load()
		all = append(all, one.waits[:one.timed.Load()]...)
	}
	return permits, all
}

// jain returns Jain's index of fairness of the permits: 1 if all processes have the same number.
func (c *contest) jain() float64 {
	var sum, squares float64
	for i := range c.contestants {
		permits := float64(c.contestants[i].permits.Load())
		sum, squares = sum+permits, squares+permits*permits
	}
	return sum * sum / (contestants * squares)
}

// mapState maps a T that processes share.
func mapState[T any](path string) *T {
	size := int(unsafe.Sizeof(*new(T)))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(err)
	defer file.Close()
	must(file.Truncate(int64(size)))
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	return (*T)(unsafe.Pointer(&memory[0]))
}

// peer starts another process of a scenario. In role "contend" the count is its number.
func (h *hostBench) peer(role string, kind lockKind, number, count int, statePath string) *exec.Cmd {
	self, err := os.Executable()
	must(err)
	cmd := exec.Command(self, "host-peer", role, string(kind), h.dir, strconv.Itoa(number), strconv.Itoa(count), statePath)
	cmd.Stderr = os.Stderr
	must(cmd.Start())
	return cmd
}

// hostPeer runs the other process of a scenario.
func hostPeer(args []string) {
	role, kind, dir := args[0], lockKind(args[1]), args[2]
	number, err := strconv.Atoi(args[3])
	must(err)
	count, err := strconv.Atoi(args[4])
	must(err)
	l := kind.open(dir, number)
	if role == "contend" {
		mapState[contest](args[5]).compete(l, count)
		return
	}
	state := mapState[peerState](args[5])
	if role == "hold" {
		l.acquire()
		state.round.Add(1)
		time.Sleep(time.Hour) // until it is killed
	}
	for range count {
		state.round.Add(1)
		l.acquire()
		state.acquired.Store(monotonic())
		l.release()
		for state.acquired.Load() != 0 { // until it was read and the permit acquired again
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// awaitAtLeast polls until v is at least want.
func awaitAtLeast(v *atomic.Int64, want int64) {
	for v.Load() < want {
		time.Sleep(50 * time.Microsecond)
	}
}

// monotonic returns the time of CLOCK_MONOTONIC, which all processes of the
// machine share.
func monotonic() int64 {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		must(errno)
	}
	return ts.Nano()
}
