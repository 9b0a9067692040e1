//go:build linux

package host_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

var stressRounds = flag.Int("stress.rounds", 20, "number of processes that the chaos test kills")

const (
	chaosCapacity  = 5
	chaosProcesses = 4
	chaosWorkers   = 3 // goroutines per process
)

// A cell publishes, in shared memory, what a worker holds.
type cell struct {
	holds atomic.Uint64 // pid<<32 | weight
	done  atomic.Uint64 // permits acquired so far
}

type cells [chaosProcesses * chaosWorkers]cell

func mapCells(path string) (*cells, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(int64(unsafe.Sizeof(cells{}))); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(cells{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*cells)(unsafe.Pointer(&memory[0])), nil
}

// overCapacity returns an error if more permits are held than the capacity. The cell of
// a killed process is out of date. But a process that is alive some time later was
// alive, and a holder, at the moment of the count.
func (c *cells) overCapacity() error {
	counted := map[uint32]uint64{}
	count := func() (sum uint64) {
		for _, weight := range counted {
			sum += weight
		}
		return sum
	}
	for i := range c {
		if v := c[i].holds.Load(); v != 0 {
			counted[uint32(v>>32)] += v & 0xffffffff
		}
	}
	if count() <= chaosCapacity {
		return nil
	}
	time.Sleep(100 * time.Millisecond)
	for pid := range counted {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || chaosEnded(string(stat)) {
			delete(counted, pid)
		}
	}
	if sum := count(); sum > chaosCapacity {
		return fmt.Errorf("%d permits are held of %d: %v", sum, chaosCapacity, counted)
	}
	return nil
}

func chaosEnded(stat string) bool {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return stat[i+2] == 'Z' || stat[i+2] == 'X'
		}
	}
	return true
}

// chaoticRole acquires, holds and releases until it is killed. Arguments:
// directory, name, cells, number of the process.
func chaoticRole(c *proctest.Child) {
	sem, err := host.Open(c.Args[1], chaosCapacity, host.Dir(c.Args[0]))
	c.Must(err)
	all, err := mapCells(c.Args[2])
	c.Must(err)
	number, err := strconv.Atoi(c.Args[3])
	c.Must(err)
	for worker := range chaosWorkers {
		go func() {
			mine := &all[number*chaosWorkers+worker]
			mine.holds.Store(0)
			for {
				c.Must(chaoticRound(sem, all, mine))
			}
		}()
	}
	c.Send("open")
	select {}
}

func chaoticRound(sem *host.Semaphore, all *cells, mine *cell) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(100)+1)*time.Millisecond)
	defer cancel()
	if rand.IntN(2) == 0 {
		ctx = context.Background()
	}
	n := rand.Int64N(3) + 1
	p, err := sem.Acquire(ctx, n)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	mine.holds.Store(uint64(os.Getpid())<<32 | uint64(n))
	err = all.overCapacity()
	if rand.IntN(2) == 0 {
		time.Sleep(rand.N(time.Millisecond))
	}
	mine.done.Add(1)
	mine.holds.Store(0)
	p.Release()
	return err
}

// TestSemaphore_CrashesLoseNothing kills processes, both holders and waiters, at random
// moments, and stops some of them first.
func TestSemaphore_CrashesLoseNothing(t *testing.T) {
	dir, name := t.TempDir(), "chaos"
	path := filepath.Join(dir, "cells")
	all, err := mapCells(path)
	if err != nil {
		t.Fatal(err)
	}
	sem := openIn(t, dir, name, chaosCapacity)
	var children [chaosProcesses]*proctest.Process
	start := func(i int) {
		children[i] = proctest.Start(t, "chaotic", dir, name, path, strconv.Itoa(i))
		children[i].Expect("open")
	}
	for i := range children {
		start(i)
	}
	for range *stressRounds {
		time.Sleep(rand.N(20 * time.Millisecond))
		victim := rand.IntN(chaosProcesses)
		if rand.IntN(4) == 0 {
			children[victim].Stop()
			time.Sleep(rand.N(20 * time.Millisecond))
			if rand.IntN(2) == 0 {
				children[victim].Continue()
			}
		}
		children[victim].End()
		start(victim)
	}
	checkProgress(t, all)
	for _, child := range children {
		child.End()
	}
	began := time.Now()
	p, err := sem.TryAcquire(context.Background(), chaosCapacity)
	if err != nil {
		t.Fatalf("%v after all were killed: %v", time.Since(began), err)
	}
	awaitStats(t, sem, chaosCapacity, 0)
	p.Release()
	awaitStats(t, sem, 0, 0)
}

// checkProgress fails the test if a worker acquires nothing for 20 s.
func checkProgress(t *testing.T, all *cells) {
	t.Helper()
	var before [len(all)]uint64
	for i := range all {
		before[i] = all[i].done.Load()
	}
	deadline := time.Now().Add(20 * time.Second)
	for i := range all {
		for all[i].done.Load() == before[i] {
			if time.Now().After(deadline) {
				t.Fatalf("worker %d acquired no permit for 20 s", i)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
