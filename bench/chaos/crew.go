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
	"github.com/sema-go/sema/internal/enginetest"
)

// A crew is the worker processes of a run.
type crew struct {
	scope *enginetest.Scope
	rng   *rand.Rand
	what  assignment

	mu      sync.Mutex
	workers []*worker
	trouble []string // of workers that did not end well
}

// A worker is a process.
type worker struct {
	*exec.Cmd
	done   chan struct{}
	killed bool // by us
}

func newCrew(s *enginetest.Scope, seed uint64, what assignment) *crew {
	c := &crew{scope: s, rng: rand.New(rand.NewPCG(seed, 0)), what: what}
	s.Cleanup(func() {
		for _, w := range c.all() {
			c.kill(w)
		}
	})
	return c
}

// hire starts a worker. Every other one uses pools, or is a script, and some have clocks that are
// an hour ahead or behind, where the system lets them.
func (c *crew) hire() *worker {
	program, err := os.Executable()
	if err != nil {
		c.scope.Fatalf("%v", err)
	}
	what := c.what
	what.Seed = c.rng.Uint64()
	c.mu.Lock()
	number := len(c.workers)
	c.mu.Unlock()
	if number%2 == 1 {
		what.Mode = fleet.ModePooled
	}
	if number/2%2 == 1 && what.Inside != "" {
		what.URL = what.Inside
	}
	if what.API != "" && (number%4 == 1 || number%4 == 2) { // of whom one has a clock of its own
		what.Mode = fleet.ModeExact
	} else {
		what.API = ""
	}
	text, err := json.Marshal(what)
	if err != nil {
		c.scope.Fatalf("%v", err)
	}
	line := append(atOtherTime(number), program)
	w := &worker{Cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{})}
	w.Env = append(os.Environ(), assignmentVariable+"="+string(text))
	said := &tail{}
	w.Stderr = said
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
			c.trouble = append(c.trouble, fmt.Sprintf("%v: %s", err, said))
		}
		c.mu.Unlock()
		close(w.done)
	}()
	return w
}

// atOtherTime is a command before a worker's that has its clock since boot, the
// one by which it trusts leases, be another one.
func atOtherTime(number int) []string {
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
		return nil // the system does not have it, or was started less than an hour ago
	}
	return line
}

func (c *crew) all() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*worker(nil), c.workers...)
}

// running are those who are at work.
func (c *crew) running() (some []*worker) {
	for _, w := range c.all() {
		select {
		case <-w.done:
		default:
			some = append(some, w)
		}
	}
	return some
}

func (c *crew) one() *worker {
	running := c.running()
	return running[c.rng.IntN(len(running))]
}

// kill is kill -9.
func (c *crew) kill(w *worker) {
	c.mu.Lock()
	w.killed = true
	c.mu.Unlock()
	w.Process.Kill()
	<-w.done
}

func (w *worker) pause()  { w.Process.Signal(syscall.SIGSTOP) }
func (w *worker) resume() { w.Process.Signal(syscall.SIGCONT) }

// dismiss has all of them finish, and reports what went wrong with whom.
func (c *crew) dismiss(within time.Duration) []string {
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
		c.trouble = append(c.trouble, fmt.Sprintf("%d workers did not end within %v", hung, within))
	}
	return c.trouble
}

// A tail is the last that a process has said.
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
