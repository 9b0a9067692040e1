// Command memory runs jobs that need memory, as many at a time as fit into a budget. Each
// job states what it needs before it starts.
//
//	go run ./examples/memory
//	go run ./examples/memory -budget 128 -jobs 200
//
// It prints the most bytes that were in use at once, the largest heap as the Go runtime
// measured it, and what all jobs would need together. Its exit code is 1 if the budget was
// exceeded.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
)

const mebibyte = 1 << 20

func main() {
	budget := flag.Int64("budget", 64, "MiB that the jobs may use at once")
	jobs := flag.Int("jobs", 60, "jobs to run")
	flag.Parse()
	if *budget < 1 || *jobs < 1 {
		fmt.Fprintln(os.Stderr, "memory: want a budget and a number of jobs of at least 1")
		os.Exit(2)
	}
	// The gate bounds what the jobs hold, and not what they have left to the garbage
	// collector. The memory limit bounds that: the collector runs before the heap has
	// grown to it.
	limit := 2 * *budget * mebibyte
	debug.SetMemoryLimit(limit)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	memory := sema.New(*budget*mebibyte, sema.Name("memory"))
	var used meter
	var all int64
	g := group.New(ctx, memory)
	for range *jobs {
		size := (1 + rand.Int64N(max(*budget/3, 1))) * mebibyte
		all += size
		g.GoN(size, func(context.Context) error { // waits until the job fits into the budget
			used.run(size)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
	inUse := used.inUse.Most()
	fmt.Printf("%d jobs that need %d MiB together\n", *jobs, all/mebibyte)
	fmt.Printf("in use at once: at most %d of %d MiB\n", inUse/mebibyte, *budget)
	fmt.Printf("heap, with garbage: at most %d MiB, memory limit %d MiB\n", used.largestHeap()/mebibyte, limit/mebibyte)
	if inUse > *budget*mebibyte {
		fmt.Fprintln(os.Stderr, "memory: the budget was exceeded")
		os.Exit(1)
	}
}

// A meter measures what the jobs use.
type meter struct {
	inUse peak.Meter // bytes
	mu    sync.Mutex
	heap  uint64 // guarded by mu: bytes of the largest heap
}

// run does the work of a job: it uses size bytes for a moment.
func (m *meter) run(size int64) {
	m.inUse.Add(size)
	defer m.inUse.Add(-size)
	image := make([]byte, size)
	for i := 0; i < len(image); i += 4096 { // every page, so that the memory is really used
		image[i] = 1
	}
	m.readHeap()
	time.Sleep(10 * time.Millisecond)
	clear(image) // in use until here: a buffer that is not used any more is garbage before it is out of scope
}

// readHeap records the bytes of the heap: objects, and garbage that is not yet collected.
func (m *meter) readHeap() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heap = max(m.heap, sample[0].Value.Uint64())
}

func (m *meter) largestHeap() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heap
}
