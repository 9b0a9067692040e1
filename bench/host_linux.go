package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/host/sysv"
)

func init() {
	suites["host"] = hostScenarios
	roles["host-peer"] = hostPeer
}

// hostScenarios compare what processes of one machine share. Rivals that are
// programs are run as programs.
func hostScenarios() []scenario {
	h := newHostBench()
	return []scenario{
		{
			name:  "host-uncontended",
			about: "one process, acquire + release, nobody else",
			impls: []impl{h.pairs(hostLock), h.pairs(flockLock), h.pairs(sysvLock), h.pairs(posixLock)},
			bars:  []bar{{impl: "sema/host", rival: "flock(2)", limit: 3}},
		},
		{
			name:  "posix-uncontended",
			about: "one process, wait + post of a named POSIX semaphore",
			impls: []impl{h.pairs(posixLock), {"C, glibc", h.glibcPairs}},
			bars:  []bar{{impl: "sema/host/posix", rival: "C, glibc", limit: 1.5}},
		},
		{
			name:  "hand-off",
			about: "from a release to the acquire of another process that waits, both idle before",
			impls: []impl{h.handOff(hostLock), h.handOff(posixLock), h.handOff(sysvLock), h.handOff(flockLock)},
			bars: []bar{
				{impl: "sema/host", limit: 1e6, value: func(r row) float64 { return r.P99 }, unit: "p99 in ns"},
			},
		},
		{
			name:  "4-processes-on-1",
			about: "four processes take turns at one permit, as fast as they can",
			impls: []impl{h.contended(hostLock), h.contended(posixLock), h.contended(sysvLock), h.contended(flockLock)},
		},
		{
			name:  "command",
			about: "a whole command (true) under a permit of four",
			impls: []impl{
				h.command("sema: examples/share", h.build("share"), "bench", "4", "true"),
				h.command("flock(1), of one", "flock", filepath.Join(h.dir, "command"), "true"),
				h.command("GNU sem", "sem", "--fg", "--id", "sema-bench", "-j4", "true"),
				h.command("no limit", "true"),
			},
		},
	}
}

// A hostBench has a directory for files and programs, left to the system's
// cleaning.
type hostBench struct {
	dir   string
	glibc string // the C program
}

func newHostBench() *hostBench {
	dir, err := os.MkdirTemp("", "sema-bench")
	must(err)
	h := &hostBench{dir: dir, glibc: filepath.Join(dir, "glibc")}
	out, err := exec.Command("gcc", "-O2", "-pthread", "-o", h.glibc, "../host/posix/testdata/bench.c").CombinedOutput()
	if err != nil {
		must(fmt.Errorf("gcc: %w\n%s(apt-get install gcc libc6-dev; and run this from the bench directory)", err, out))
	}
	return h
}

func (h *hostBench) build(example string) string {
	path := filepath.Join(h.dir, example)
	out, err := exec.Command("go", "build", "-o", path, "../examples/"+example).CombinedOutput()
	if err != nil {
		must(fmt.Errorf("go build: %w\n%s", err, out))
	}
	return path
}

// A locker is one permit shared by processes.
type locker struct {
	acquire, release func()
	remove           func()
}

type lockKind string

const (
	hostLock  lockKind = "sema/host"
	posixLock lockKind = "sema/host/posix"
	sysvLock  lockKind = "sema/host/sysv"
	flockLock lockKind = "flock(2)"
)

// open makes or opens a locker, by a number that its users agree on.
func (kind lockKind) open(dir string, number int) locker {
	ctx := context.Background()
	switch kind {
	case hostLock:
		s, err := host.Open(fmt.Sprint("bench-", number), 1, host.Dir(dir))
		must(err)
		release := func() {}
		return locker{
			acquire: func() { p, err := s.Acquire(ctx, 1); must(err); release = p.Release },
			release: func() { release() },
			remove:  func() { s.Close() },
		}
	case posixLock:
		name := fmt.Sprint("sema-bench-", number)
		s, err := posix.Create(name, 0o600, 1, false)
		must(err)
		return locker{
			acquire: func() { must(s.Wait(ctx)) },
			release: func() { must(s.Post()) },
			remove:  func() { must(s.Close()); must(posix.Unlink(name)) },
		}
	case sysvLock:
		s, err := sysv.OpenOrCreate(sysv.Key(number), 0o600, 1)
		must(err)
		return locker{
			acquire: func() { must(s.Op(ctx, sysv.Op{Delta: -1, Undo: true})) },
			release: func() { must(s.Op(ctx, sysv.Op{Delta: 1, Undo: true})) },
			remove:  func() { must(s.Remove()) },
		}
	case flockLock:
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("flock-", number)), os.O_RDWR|os.O_CREATE, 0o600)
		must(err)
		flock := func(how int) {
			for {
				err := syscall.Flock(int(file.Fd()), how)
				if err != syscall.EINTR {
					must(err)
					return
				}
			}
		}
		return locker{
			acquire: func() { flock(syscall.LOCK_EX) },
			release: func() { flock(syscall.LOCK_UN) },
			remove:  func() { file.Close() },
		}
	}
	panic("no such kind")
}

var lockNumber = os.Getpid() << 8

func nextNumber() int { lockNumber++; return lockNumber }

// pairs acquires and releases in this process. POSIX semaphores are called
// directly: through two closures a tenth of the figure would be calls.
func (h *hostBench) pairs(kind lockKind) impl {
	return impl{string(kind), func() sample {
		if kind == posixLock {
			return posixPairs()
		}
		l := kind.open(h.dir, nextNumber())
		defer l.remove()
		const ops = 50_000
		return measure(ops, func() {
			for range ops {
				l.acquire()
				l.release()
			}
		})
	}}
}

const posixOps = 5_000_000

func posixPairs() sample {
	name := fmt.Sprint("sema-bench-", nextNumber())
	s, err := posix.Create(name, 0o600, 1, true)
	must(err)
	defer posix.Unlink(name)
	ctx := context.Background()
	return measure(posixOps, func() {
		for range posixOps {
			must(s.Wait(ctx))
			must(s.Post())
		}
	})
}

// glibcPairs has the C program say how long a pair took it.
func (h *hostBench) glibcPairs() sample {
	name := fmt.Sprint("/sema-bench-", nextNumber())
	defer posix.Unlink(name)
	out, err := exec.Command(h.glibc, name, strconv.Itoa(posixOps)).Output()
	must(err)
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	must(err)
	return sample{ops: posixOps, elapsed: time.Duration(ns * posixOps)}
}

// command runs a program again and again. One that is not installed counts as
// nothing.
func (h *hostBench) command(name string, args ...string) impl {
	if _, err := exec.LookPath(args[0]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s is missing (apt-get install %s)\n", args[0], map[string]string{"sem": "parallel", "flock": "util-linux"}[args[0]])
		return impl{name + " (missing)", func() sample { return sample{ops: 1, elapsed: 1} }}
	}
	return impl{name, func() sample {
		const ops = 5
		return measure(ops, func() {
			for range ops {
				must(exec.Command(args[0], args[1:]...).Run())
			}
		})
	}}
}

// A meeting is where two processes of a scenario leave notes.
type meeting struct {
	round    atomic.Int64 // which the peer is about to wait in
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

// handOff measures, again and again, how long after a release the other
// process has the permit. Both sleep before, so that neither is found running.
func (h *hostBench) handOff(kind lockKind) impl {
	return impl{string(kind), func() sample {
		const rounds = 200
		number := nextNumber()
		path := filepath.Join(h.dir, fmt.Sprint("meeting-", number))
		notes := mapMeeting(path)
		l := kind.open(h.dir, number)
		defer l.remove()
		l.acquire()
		peer := h.peer("hand-off", kind, number, rounds, path)
		var waits []time.Duration
		for round := int64(1); round <= rounds; round++ {
			awaitNote(&notes.round, round)
			time.Sleep(time.Millisecond) // the peer is about to wait, then waits, then both are idle
			released := monotonic()
			l.release()
			awaitNote(&notes.acquired, released)
			waits = append(waits, time.Duration(notes.acquired.Load()-released))
			l.acquire() // the peer has released it
			notes.acquired.Store(0)
		}
		must(peer.Wait())
		slices.Sort(waits)
		s := sample{ops: rounds, p99: float64(waits[len(waits)*99/100])}
		for _, wait := range waits {
			s.elapsed += wait
		}
		return s
	}}
}

// contended has four processes acquire and release as fast as they can.
func (h *hostBench) contended(kind lockKind) impl {
	return impl{string(kind), func() sample {
		const processes, each = 4, 2_000
		number := nextNumber()
		l := kind.open(h.dir, number)
		defer l.remove()
		l.acquire()
		var peers []*exec.Cmd
		for range processes {
			peers = append(peers, h.peer("contend", kind, number, each, "-"))
		}
		time.Sleep(50 * time.Millisecond) // all of them stand in line
		return measure(processes*each, func() {
			l.release()
			for _, peer := range peers {
				must(peer.Wait())
			}
		})
	}}
}

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
	for round := range int64(count) {
		notes.round.Store(round + 1)
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
