package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/host/sysv"
)

func init() {
	suites["host"] = hostScenarios
	roles["host-peer"] = hostPeer
}

// hostScenarios returns the scenarios for semaphores between processes of one
// machine. Rivals that are programs run as programs.
func hostScenarios() []scenario {
	h := newHostBench()
	allocs := func(r row) float64 { return r.AllocsOp }
	return []scenario{
		{
			name:    "host-uncontended",
			about:   "one process, acquire + release, uncontended",
			impls:   []impl{h.pairs(hostLock), h.pairs(flockLock), h.pairs(sysvLock), h.pairs(posixLock)},
			targets: []target{{impl: "sema/host", rival: "flock(2)", limit: 1.2}, {impl: "sema/host", limit: 0.01, value: allocs, unit: "allocs/op"}},
		},
		{
			name:    "posix-uncontended",
			about:   "one process, wait + post of a named POSIX semaphore",
			impls:   []impl{h.pairs(posixLock), {"C, glibc", h.glibcPairs}},
			targets: []target{{impl: "sema/host/posix", rival: "C, glibc", limit: 1.5}},
		},
		{
			name:    "hand-off",
			about:   "from a release to the acquire of another waiting process, both idle before",
			impls:   []impl{h.handOff(hostLock), h.handOff(posixLock), h.handOff(sysvLock), h.handOff(flockLock)},
			targets: []target{p99Target(hostLock, time.Millisecond)},
		},
		{
			name:    "crash",
			about:   "from kill -9 of the holder to the acquire of a waiting process",
			impls:   []impl{h.crash(hostLock), h.crash(sysvLock), h.crash(flockLock)},
			targets: []target{{impl: string(hostLock), rival: string(flockLock), limit: 2}, p99Target(hostLock, 100*time.Millisecond)},
		},
		{
			name:  "cancel",
			about: "from the cancellation of a context to the return of the acquire",
			impls: []impl{h.cancel(hostLock), h.cancel(posixLock), h.cancel(sysvLock)},
			targets: []target{
				p99Target(hostLock, 10*time.Millisecond),
				p99Target(posixLock, 10*time.Millisecond),
				p99Target(sysvLock, 10*time.Millisecond),
			},
		},
		{
			name:  "4-processes-on-1",
			about: "four processes acquire + release one permit, as fast as they can; and how long each waits; the count is how much Jain's index of their permits is below 1, in millionths",
			impls: []impl{h.contended(hostLock), h.contended(posixLock), h.contended(sysvLock), h.contended(flockLock)},
			targets: []target{
				{impl: string(hostLock), rival: string(sysvLock), limit: 1},
				{impl: string(hostLock), rival: string(sysvLock), limit: 2, value: func(r row) float64 { return r.P999 }, unit: "p99.9 of the waits"},
				{impl: string(hostLock), limit: 10_000, value: func(r row) float64 { return r.Count }, unit: "millionths below a Jain index of 1"},
			},
		},
		{
			name:  "command",
			about: "a command (true), run with one of four permits",
			impls: []impl{
				h.command("sema run", h.install(), "run", "bench", "-n", "4", "--", "true"),
				h.command("sema run, complete program", h.build("cmd/sema"), "run", "bench", "-n", "4", "--", "true"),
				h.command("examples/share", h.build("examples/share"), "bench", "4", "true"),
				h.command("flock(1), of one", "flock", filepath.Join(h.dir, "command"), "true"),
				h.command("GNU sem", "sem", "--fg", "--id", "sema-bench", "-j4", "true"),
				h.command("no limit", "true"),
			},
			targets: []target{{impl: "sema run", rival: "flock(1), of one", limit: 3}},
		},
	}
}

func p99Target(kind lockKind, limit time.Duration) target {
	return target{impl: string(kind), limit: float64(limit) / 1e6, value: func(r row) float64 { return r.P99 / 1e6 }, unit: "p99 in ms"}
}

// A hostBench has a directory for files and programs, which is left to the
// system's cleanup.
type hostBench struct {
	dir   string
	glibc string // path of the C program
}

func newHostBench() *hostBench {
	dir, err := os.MkdirTemp("", "sema-bench")
	must(err)
	h := &hostBench{dir: dir, glibc: filepath.Join(dir, "glibc")}
	out, err := exec.Command("gcc", "-O2", "-pthread", "-o", h.glibc, "../host/posix/testdata/bench.c").CombinedOutput()
	if err != nil {
		must(fmt.Errorf("gcc: %w\n%s(needs gcc and libc6-dev, and the bench directory as working directory)", err, out))
	}
	return h
}

// install installs sema as users do, and returns its path.
func (h *hostBench) install() string {
	directory := filepath.Join(h.dir, "installed")
	out, err := exec.Command("make", "-C", "..", "--no-print-directory", "install", "BINDIR="+directory).CombinedOutput()
	if err != nil {
		must(fmt.Errorf("make install: %w\n%s", err, out))
	}
	return filepath.Join(directory, "sema")
}

// build builds a command of the project.
func (h *hostBench) build(dir string) string {
	path := filepath.Join(h.dir, filepath.Base(dir))
	out, err := exec.Command("go", "build", "-C", "../"+dir, "-o", path, ".").CombinedOutput()
	if err != nil {
		must(fmt.Errorf("go build: %w\n%s", err, out))
	}
	return path
}

// A locker is one permit shared by processes.
type locker struct {
	wait    func(context.Context) error
	release func()
	remove  func()
}

func (l locker) acquire() { must(l.wait(context.Background())) }

type lockKind string

const (
	hostLock  lockKind = "sema/host"
	posixLock lockKind = "sema/host/posix"
	sysvLock  lockKind = "sema/host/sysv"
	flockLock lockKind = "flock(2)"
)

// open opens or creates the locker with a number that its users agree on.
func (kind lockKind) open(dir string, number int) locker {
	switch kind {
	case hostLock:
		s, err := host.Open(fmt.Sprint("bench-", number), 1, host.Dir(dir))
		must(err)
		var held sema.Permit
		return locker{
			wait: func(ctx context.Context) error {
				p, err := s.Acquire(ctx, 1)
				if err == nil {
					held = p
				}
				return err
			},
			release: func() { held.Release() },
			remove:  func() { s.Close() },
		}
	case posixLock:
		name := fmt.Sprint("sema-bench-", number)
		s, err := posix.Create(name, 0o600, 1, false)
		must(err)
		return locker{
			wait:    s.Wait,
			release: func() { must(s.Post()) },
			remove:  func() { must(s.Close()); must(posix.Unlink(name)) },
		}
	case sysvLock:
		s, err := sysv.OpenOrCreate(sysv.Key(number), 0o600, 1)
		must(err)
		return locker{
			wait:    func(ctx context.Context) error { return s.Op(ctx, sysv.Op{Delta: -1, Undo: true}) },
			release: func() { must(s.Op(context.Background(), sysv.Op{Delta: 1, Undo: true})) },
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
			wait:    func(context.Context) error { flock(syscall.LOCK_EX); return nil }, // cannot be cancelled
			release: func() { flock(syscall.LOCK_UN) },
			remove:  func() { file.Close() },
		}
	}
	panic("unknown kind of lock")
}

var lockNumber = os.Getpid() << 8

func nextNumber() int { lockNumber++; return lockNumber }

// pairs acquires and releases in this process. POSIX semaphores are called
// directly: calls through two closures would take a tenth of the time.
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

// glibcPairs runs the C program, which prints the time of a pair.
func (h *hostBench) glibcPairs() sample {
	name := fmt.Sprint("/sema-bench-", nextNumber())
	defer posix.Unlink(name)
	out, err := exec.Command(h.glibc, name, strconv.Itoa(posixOps)).Output()
	must(err)
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	must(err)
	return sample{ops: posixOps, elapsed: time.Duration(ns * posixOps)}
}

// command runs a program repeatedly. One that is not installed is no row of the table.
func (h *hostBench) command(name string, args ...string) impl {
	if _, err := exec.LookPath(args[0]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s is missing (apt-get install %s)\n", args[0], map[string]string{"sem": "parallel", "flock": "util-linux"}[args[0]])
		return impl{name: name}
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

// handOff measures repeatedly how long after a release the other process has
// acquired the permit. Both sleep before, so that neither is running at that
// time.
func (h *hostBench) handOff(kind lockKind) impl {
	return impl{string(kind), func() sample {
		const rounds = 200
		number := nextNumber()
		path := filepath.Join(h.dir, fmt.Sprint("meeting-", number))
		state := mapState[peerState](path)
		l := kind.open(h.dir, number)
		defer l.remove()
		l.acquire()
		peer := h.peer("hand-off", kind, number, rounds, path)
		var waits []time.Duration
		for round := int64(1); round <= rounds; round++ {
			awaitAtLeast(&state.round, round)
			time.Sleep(time.Millisecond) // the peer starts to wait, then both are idle
			released := monotonic()
			l.release()
			awaitAtLeast(&state.acquired, released)
			waits = append(waits, time.Duration(state.acquired.Load()-released))
			l.acquire() // after the peer has released it
			state.acquired.Store(0)
		}
		must(peer.Wait())
		return sampleOf(waits)
	}}
}

// crash kills the holder repeatedly, at random points of the waiter's polling
// interval. The waiter is a separate process: a parent would get SIGCHLD when
// the holder ends.
func (h *hostBench) crash(kind lockKind) impl {
	return impl{string(kind), func() sample {
		var waits []time.Duration
		for range 20 {
			number := nextNumber()
			path := filepath.Join(h.dir, fmt.Sprint("meeting-", number))
			state := mapState[peerState](path)
			holder := h.peer("hold", kind, number, 0, path)
			awaitAtLeast(&state.round, 1)
			waiter := h.peer("hand-off", kind, number, 1, path)
			awaitAtLeast(&state.round, 2)
			time.Sleep(5*time.Millisecond + rand.N(50*time.Millisecond))
			killed := monotonic()
			must(holder.Process.Kill())
			awaitAtLeast(&state.acquired, killed)
			waits = append(waits, time.Duration(state.acquired.Load()-killed))
			state.acquired.Store(0)
			holder.Wait()
			must(waiter.Wait())
			kind.open(h.dir, number).remove()
		}
		return sampleOf(waits)
	}}
}

// cancel cancels the contexts of waiters.
func (h *hostBench) cancel(kind lockKind) impl {
	return impl{string(kind), func() sample {
		number := nextNumber()
		held, l := kind.open(h.dir, number), kind.open(h.dir, number)
		defer held.remove()
		held.acquire()
		var waits []time.Duration
		for range 100 {
			ctx, cancel := context.WithCancel(context.Background())
			returned := make(chan time.Time)
			go func() {
				if l.wait(ctx) == nil {
					must(errors.New("acquired a permit that is held"))
				}
				returned <- time.Now()
			}()
			time.Sleep(time.Millisecond)
			cancelled := time.Now()
			cancel()
			waits = append(waits, (<-returned).Sub(cancelled))
		}
		held.release()
		return sampleOf(waits)
	}}
}

// contended runs four processes that acquire and release as fast as they can. Two figures show
// how fair that is. Jain's index of their permits also counts the permits that a process takes
// while no other one waits; the longest waits show what the others lose by it.
func (h *hostBench) contended(kind lockKind) impl {
	return impl{string(kind), func() sample {
		const duration = 500 * time.Millisecond
		number := nextNumber()
		path := filepath.Join(h.dir, fmt.Sprint("contest-", number))
		state := mapState[contest](path)
		l := kind.open(h.dir, number)
		defer l.remove()
		l.acquire()
		var peers []*exec.Cmd
		for i := range contestants {
			peers = append(peers, h.peer("contend", kind, number, i, path))
		}
		time.Sleep(50 * time.Millisecond) // all of them are queued
		began := time.Now()
		l.release()
		time.Sleep(duration)
		permits, waits := state.results()
		elapsed, unfair := time.Since(began), 1-state.jain()
		state.over.Store(true)
		for _, peer := range peers {
			must(peer.Wait())
		}
		return sample{ops: int(permits), elapsed: elapsed, count: 1e6 * unfair}.withWaits(waits)
	}}
}
