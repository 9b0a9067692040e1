// Command cron runs a command on one machine at a time. Put it into the crontab of several
// machines: the first that starts runs the command, and the others skip it.
//
//	*/5 * * * * cron redis://redis.internal:6379/0 backup /usr/local/bin/backup
//
//	go run ./x/examples/cron redis://localhost:6379/0 hello echo hello
//
// If the machine crashes, another one runs the command at its next time: the permit is
// backed by a lease, which ends after -ttl without a renewal. If the lease is lost while
// the command runs, because Redis cannot be reached, the command receives SIGTERM before
// another machine starts it.
//
// A command that takes a second may have ended on one machine before another one, whose
// clock is late, starts it. With -every 4m it is started at most once in four minutes: set
// it to a bit less than the interval of the crontab.
//
// The exit code is that of the command, and 0 if it was skipped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/redisstore"
)

func main() {
	ttl := flag.Duration("ttl", 15*time.Second, "time after which a machine that crashed has lost its permit")
	every := flag.Duration("every", 0, "start the command at most once in this time; default: no bound")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: cron [-ttl 15s] [-every 4m] REDIS-URL NAME COMMAND [ARGUMENT…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 3 {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	job := job{name: flag.Arg(1), command: flag.Args()[2:], ttl: *ttl, every: *every}
	err := job.run(ctx, flag.Arg(0))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

type job struct {
	name       string
	command    []string
	ttl, every time.Duration
}

// run runs the command, unless another machine does or has just done so.
func (j job) run(ctx context.Context, url string) (err error) {
	client, err := fleet.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, client.Close(ending)) // until Redis has confirmed the release
	}()
	permit, err := j.acquire(ctx, client)
	if errors.Is(err, sema.ErrFull) {
		fmt.Printf("%s: skipped, %s\n", j.name, j.why(ctx, client))
		return nil
	} else if err != nil {
		return err
	}
	defer permit.Release()
	held, cancel := permit.Context(ctx) // ends when the lease is lost
	defer cancel()
	cmd := exec.CommandContext(held, j.command[0], j.command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second // then SIGKILL
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// acquire acquires the permit of the job, and one of its rate if it has one. It does not
// wait.
func (j job) acquire(ctx context.Context, client *fleet.Client) (sema.Permit, error) {
	one, err := client.Semaphore("cron/"+j.name, 1, fleet.TTL(j.ttl))
	if err != nil {
		return sema.Permit{}, err
	}
	permit, err := one.TryAcquire(ctx, 1)
	if err != nil || j.every == 0 {
		return permit, err
	}
	starts, err := client.Semaphore("cron/"+j.name+"/starts", 1, fleet.Rate(j.every))
	if err == nil {
		_, err = starts.TryAcquire(ctx, 1) // spent: it returns by time
	}
	if err != nil {
		return sema.Permit{}, errors.Join(err, fleet.Release(ctx, permit))
	}
	return permit, nil
}

// why returns what runs the command, or when it was started.
func (j job) why(ctx context.Context, client *fleet.Client) string {
	info, err := client.Info(ctx, "cron/"+j.name)
	if err != nil {
		return err.Error()
	}
	for _, h := range info.Holders {
		return fmt.Sprintf("process %d of %s runs it since %s", h.Process, h.Host, h.Since.Format(time.TimeOnly))
	}
	return "it has just run"
}
