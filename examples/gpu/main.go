// Command gpu runs jobs on one GPU. Each needs some of its memory and some of its compute
// units, and starts when both are free.
//
//	go run ./examples/gpu
//
// It prints each job as it starts, and how much was in use at once. Its exit code is 1 if
// that exceeds what the GPU has.
//
// A job that acquired its memory and then waited for compute would hold memory that it
// cannot use, and two jobs that acquire in different orders deadlock. [sema.AcquireAll]
// holds nothing while it waits. To assign whole GPUs by number, see examples/gpurun.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
)

// A job states what it needs.
type job struct {
	name    string
	memory  int64 // GiB
	compute int64 // percent
}

// kinds are the jobs that run: some need much memory and little compute, some the reverse.
var kinds = []job{
	{"train", 16, 70},
	{"embed", 2, 40},
	{"chat", 14, 15},
	{"resize", 1, 50},
	{"index", 6, 25},
	{"fine-tune", 24, 100}, // all of the GPU: served in its turn, like the others
}

func main() {
	jobs := flag.Int("jobs", 24, "jobs to run")
	memory := flag.Int64("memory", 24, "memory of the GPU in GiB, at least 24")
	flag.Parse()
	if *jobs < 1 || *memory < 24 {
		fmt.Fprintln(os.Stderr, "gpu: want at least 1 job and 24 GiB of memory")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	d := &gpu{memory: sema.New(*memory, sema.Name("GPU memory")), compute: sema.New(100, sema.Name("GPU compute"))}
	g := group.New(ctx, nil) // no bound of its own: the GPU decides
	for i := range *jobs {
		g.Go(func(ctx context.Context) error { return d.run(ctx, kinds[i%len(kinds)]) })
	}
	if err := g.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
	usedMemory, usedCompute := d.usedMemory.Most(), d.usedCompute.Most()
	fmt.Printf("%d jobs done, in use at once: at most %d of %d GiB, %d of 100 %%\n", *jobs, usedMemory, *memory, usedCompute)
	if usedMemory > *memory || usedCompute > 100 {
		os.Exit(1)
	}
}

type gpu struct {
	memory, compute         *sema.Semaphore
	usedMemory, usedCompute peak.Meter
}

// run runs a job while it holds its memory and its compute units.
func (d *gpu) run(ctx context.Context, j job) error {
	permit, err := sema.AcquireAll(ctx, sema.Want{Gate: d.memory, N: j.memory}, sema.Want{Gate: d.compute, N: j.compute})
	if err != nil {
		return fmt.Errorf("%s: %w", j.name, err)
	}
	defer permit.Release()
	d.usedMemory.Add(j.memory)
	d.usedCompute.Add(j.compute)
	defer d.usedMemory.Add(-j.memory)
	defer d.usedCompute.Add(-j.compute)
	fmt.Printf("%-10s %2d GiB %3d %%\n", j.name, j.memory, j.compute)
	time.Sleep(20 * time.Millisecond) // the job
	return nil
}
