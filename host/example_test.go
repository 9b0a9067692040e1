//go:build linux

package host_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

// At most four compilers run at a time, among all processes of this user.
func Example() {
	compilers, err := host.Open("example/compilers", 4)
	if err != nil {
		log.Fatal(err)
	}
	defer compilers.Close()
	permit, err := compilers.Acquire(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println("compiling")
	// Output: compiling
}

// Two of the eight GPUs of this machine, which no other process uses meanwhile.
func ExampleSemaphore_Acquire_slots() {
	gpus, err := host.Open("example/gpus", 8)
	if err != nil {
		log.Fatal(err)
	}
	defer gpus.Close()
	permit, err := gpus.Acquire(context.Background(), 2)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println(len(permit.Slots()), "GPUs")
	// Output: 2 GPUs
}

// A job that must not overlap itself: a second instance exits at once. The job may be
// killed at any time, and the next one still runs.
func ExampleSemaphore_TryAcquire() {
	job, err := host.Open("example/nightly", 1)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Close()
	permit, err := job.TryAcquire(context.Background(), 1)
	if errors.Is(err, sema.ErrFull) {
		fmt.Println("still running, see you tomorrow")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println("running")
	// Output: running
}

// Inspect returns the holders and when each acquired its permit.
func ExampleSemaphore_Inspect() {
	gpu, err := host.Open("example/gpu", 80) // gigabytes
	if err != nil {
		log.Fatal(err)
	}
	defer gpu.Close()
	permit, err := gpu.Acquire(context.Background(), 24)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	info, err := gpu.Inspect(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range info.Holders {
		fmt.Println(h.PID == os.Getpid(), h.Weight, time.Since(h.Since) < time.Minute)
	}
	// Output: true 24 true
}

// A command that keeps its permit even if this process is killed.
func ExampleInherit() {
	builds, err := host.Open("example/builds", 2)
	if err != nil {
		log.Fatal(err)
	}
	defer builds.Close()
	permit, err := builds.Acquire(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	cmd := exec.Command("echo", "built")
	if err := host.Inherit(permit, cmd); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		log.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(out))
	// Output: built
}

// AcquireAll acquires the GPU and a worker of this process, both or neither.
func ExampleOpen_acquireAll() {
	gpu, err := host.Open("example/gpu", 80)
	if err != nil {
		log.Fatal(err)
	}
	defer gpu.Close()
	workers := sema.New(8)
	permit, err := sema.AcquireAll(context.Background(), sema.Want{Gate: gpu, N: 8}, sema.Want{Gate: workers, N: 1})
	if err != nil {
		log.Fatal(err)
	}
	permit.Release()
	fmt.Println("done")
	// Output: done
}
