// Command share runs a command once one of N permits of this machine is free.
// All shells, cron jobs and services that use the same name share the permits:
//
//	go build -o /tmp/share ./examples/share
//	/tmp/share compilers 4 make -j1    # at most four makes at a time
//
// Its exit code is the command's. If share is killed, even by SIGKILL, its
// permit is released as soon as the command has ended, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/sema-go/sema/host"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: share NAME N COMMAND [ARGUMENT…]")
		os.Exit(64)
	}
	shares, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || shares < 1 {
		fmt.Fprintf(os.Stderr, "share: %q shares: want a number of 1 or more\n", os.Args[2])
		os.Exit(64)
	}
	if err := run(os.Args[1], shares, os.Args[3:]); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Exited() {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "share:", err)
		os.Exit(1)
	}
}

func run(name string, shares int64, command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sem, err := host.Open(name, shares)
	if err != nil {
		return err
	}
	defer sem.Close()
	waiting := time.AfterFunc(2*time.Second, func() { explain(sem) })
	permit, err := sem.Acquire(ctx, 1)
	waiting.Stop()
	if err != nil {
		return err
	}
	defer permit.Release()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := host.Inherit(permit, cmd); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return cmd.Run()
}

// explain prints the processes that hold the permits.
func explain(sem *host.Semaphore) {
	info, err := sem.Inspect(context.Background())
	if err != nil {
		return
	}
	fmt.Fprintf(os.Stderr, "share: waiting for one of %d holders to end:\n", len(info.Holders))
	for _, h := range info.Holders {
		fmt.Fprintf(os.Stderr, "  %7d  since %s  %s\n", h.PID, h.Since.Format(time.TimeOnly), h.Command)
	}
}
