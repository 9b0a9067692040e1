//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
)

// A workerSet contains the worker processes of a run.
type workerSet struct {
	scope *storetest.Scope
	rng   *rand.Rand
	base  assignment // for all workers; start adapts it

	mu       sync.Mutex
	workers  []*worker
	failures []string // of workers that failed
}

// A worker is a child process that runs [work].
type worker struct {
	*exec.Cmd
	done   chan struct{}
	killed bool // by kill
}

func newWorkerSet(s *storetest.Scope, seed uint64, base assignment) *workerSet {
	c := &workerSet{scope: s, rng: rand.New(rand.NewPCG(seed, 0)), base: base}
	s.Cleanup(func() {
		for _, w := range c.all() {
			c.kill(w)
		}
	})
	return c
}

// start starts a worker. Every other worker uses pools. If there is a JSON API,
// half of the workers use that instead, as scripts. Half of the workers have
// clocks that are an hour ahead or behind, if the system supports that.
func (c *workerSet) start() *worker {
	program, err := os.Executable()
	if err != nil {
		c.scope.Fatalf("%v", err)
	}
	base := c.base
	base.Seed = c.rng.Uint64()
	c.mu.Lock()
	number := len(c.workers)
	c.mu.Unlock()
	if number%2 == 1 {
		base.Mode = fleet.ModePooled
	}
	if number/2%2 == 1 && base.PartitionedURL != "" {
		base.URL = base.PartitionedURL
	}
	if base.API != "" && (number%4 == 1 || number%4 == 2) { // one of them with a different clock
		base.Mode = fleet.ModeExact
	} else {
		base.API = ""
	}
	text, err := json.Marshal(base)
	if err != nil {
		c.scope.Fatalf("%v", err)
	}
	line := append(clockOffsetCommand(number), program)
	w := &worker{Cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{})}
	w.Env = append(os.Environ(), assignmentVariable+"="+string(text))
	stderr := &tail{}
	w.Stderr = stderr
	if err := w.Start(); err != nil {
		c.scope.Fatalf("%v", err)
	}
	c.mu.Lock()
	c.workers = append(c.workers, w)
	c.mu.Unlock()
	go func() {
		err := w.Wait()
		c.mu.Lock()
		if err != nil && !w.killed {
			c.failures = append(c.failures, fmt.Sprintf("%v: %s", err, stderr))
		}
		c.mu.Unlock()
		close(w.done)
	}()
	return w
}

// clockOffsetCommand returns a command prefix that gives a worker a different
// boot-time clock. By that clock a worker decides how long it relies on its
// leases.
func clockOffsetCommand(number int) []string {
	offset := ""
	switch number % 4 {
	case 2:
		offset = "3600"
	case 3:
		offset = "-3600"
	default:
		return nil
	}
	line := []string{"unshare", "--time", "--boottime", offset, "--monotonic", offset, "--"}
	if exec.Command(line[0], append(line[1:], "true")...).Run() != nil {
		return nil // not supported by the system, or booted less than an hour ago
	}
	return line
}

func (c *workerSet) all() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*worker(nil), c.workers...)
}

// running returns the workers that have not ended.
func (c *workerSet) running() (some []*worker) {
	for _, w := range c.all() {
		select {
		case <-w.done:
		default:
			some = append(some, w)
		}
	}
	return some
}

func (c *workerSet) one() *worker {
	running := c.running()
	return running[c.rng.IntN(len(running))]
}

// kill sends SIGKILL and waits for the end of the process.
func (c *workerSet) kill(w *worker) {
	c.mu.Lock()
	w.killed = true
	c.mu.Unlock()
	w.Process.Kill()
	<-w.done
}

func (w *worker) pause()  { w.Process.Signal(syscall.SIGSTOP) }
func (w *worker) resume() { w.Process.Signal(syscall.SIGCONT) }

// stop asks all workers to finish and returns what failed.
func (c *workerSet) stop(within time.Duration) []string {
	for _, w := range c.running() {
		w.Process.Signal(syscall.SIGTERM)
	}
	end := time.After(within)
	hung := 0
	for _, w := range c.running() {
		select {
		case <-w.done:
		case <-end:
			hung++
			c.kill(w)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if hung > 0 {
		c.failures = append(c.failures, fmt.Sprintf("%d workers did not end within %v", hung, within))
	}
	return c.failures
}

// A tail keeps the last 2000 bytes that a process printed.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
