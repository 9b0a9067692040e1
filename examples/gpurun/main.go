// Command gpurun runs a command on GPUs that no other process of this machine uses through
// it: it waits until they are free, and passes their numbers in CUDA_VISIBLE_DEVICES.
//
//	go run ./examples/gpurun                              # prints the number of a free GPU
//	go build -o /tmp/gpurun ./examples/gpurun
//	/tmp/gpurun -gpus 8 -n 2 python3 train.py             # two of eight
//
// Its exit code is the command's. The GPUs are free again when the command has ended, even
// if gpurun is killed. To share the memory and the compute units of one GPU, see
// examples/gpu.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/sema-go/sema/host"
)

func main() {
	gpus := flag.Int64("gpus", 4, "GPUs of the machine")
	n := flag.Int64("n", 1, "GPUs that the command needs")
	dir := flag.String("dir", "", "directory of the semaphore; default: that of the user")
	flag.Parse()
	command := flag.Args()
	if len(command) == 0 {
		command = []string{"sh", "-c", "echo runs on GPU $CUDA_VISIBLE_DEVICES"}
	}
	if *gpus < 1 || *n < 1 {
		fmt.Fprintln(os.Stderr, "usage: gpurun [-gpus N] [-n N] COMMAND [ARGUMENT…]")
		os.Exit(64)
	}
	err := run(*dir, *gpus, *n, command)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpurun:", err)
		os.Exit(1)
	}
}

func run(dir string, gpus, n int64, command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var opts []host.Option
	if dir != "" {
		opts = append(opts, host.Dir(dir))
	}
	sem, err := host.Open("example-gpus", gpus, opts...)
	if err != nil {
		return err
	}
	defer sem.Close()
	permit, err := sem.Acquire(ctx, n) // all n at once: two halves could wait for each other
	if err != nil {
		return err
	}
	defer permit.Release()

	var devices []string
	for _, slot := range permit.Slots() { // no two permits have a number in common
		devices = append(devices, strconv.FormatInt(slot, 10))
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(devices, ","))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := host.Inherit(permit, cmd); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return cmd.Run()
}
