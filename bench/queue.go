package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
)

// In the queue scenario, many callers in several processes compete for few
// permits.
const (
	queuePermits   = 8
	queueHold      = 5 * time.Millisecond
	queueProcesses = 4
	queueCallers   = 64 // per process
	queueDuration  = 2 * time.Second
	queueWarmUp    = time.Second // not counted
)

func init() { roles["queue"] = queueRole }

// runQueue starts processes of this program that queue for one semaphore. It
// returns the number of acquires and the distribution of the waiting times.
func runQueue(kind, url, name string) sample {
	program, err := os.Executable()
	must(err)
	var wg sync.WaitGroup
	waits := make([][]time.Duration, queueProcesses)
	for i := range waits {
		wg.Go(func() {
			cmd := exec.Command(program, "queue", kind, url, name)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			must(err)
			must(json.Unmarshal(out, &waits[i]))
		})
	}
	wg.Wait()
	all := slices.Concat(waits...)
	s := sampleOf(all)
	s.elapsed = queueDuration
	s.spread = s.p99 / float64(all[len(all)/2])
	return s
}

// queueRole runs one of the processes. It prints all waiting times of its
// callers.
func queueRole(args []string) {
	kind, url, name := args[0], args[1], args[2]
	var use func(work func())
	if kind == "fleet" {
		c, err := fleet.Open(context.Background(), url)
		must(err)
		s, err := c.Semaphore(name, queuePermits)
		must(err)
		use = func(work func()) {
			p := acquireOne(s)
			work()
			p.Release()
		}
	} else {
		use = rivalQueue(url, name)
	}
	var mu sync.Mutex
	var waits []time.Duration
	start := time.Now()
	var wg sync.WaitGroup
	for range queueCallers {
		wg.Go(func() {
			for time.Since(start) < queueWarmUp+queueDuration {
				began := time.Now()
				use(func() {
					wait := time.Since(began)
					if at := time.Since(start); at > queueWarmUp && at < queueWarmUp+queueDuration {
						mu.Lock()
						waits = append(waits, wait)
						mu.Unlock()
					}
					hold(queueHold)
				})
			}
		})
	}
	wg.Wait()
	must(json.NewEncoder(os.Stdout).Encode(waits))
}
