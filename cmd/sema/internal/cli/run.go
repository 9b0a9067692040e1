package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// wanting is the flags of who wants permits.
type wanting struct {
	capacity, weight int64
	wait, ttl        time.Duration
	noWait           bool
}

func (w *wanting) flags(c *cobra.Command) {
	f := c.Flags()
	f.Int64VarP(&w.capacity, "capacity", "n", 0, "how many may be held at a time (default: as it is, 1 if it is new)")
	f.Int64VarP(&w.weight, "weight", "w", 1, "how many permits to take, all or none")
	f.DurationVar(&w.wait, "wait", -1, "give up after so long, as 30s or 5m (default: wait)")
	f.BoolVar(&w.noWait, "no-wait", false, "give up at once if there is none")
	f.DurationVar(&w.ttl, "ttl", 0, "of a new semaphore of an engine: after so long without a word from a holder others are let in (default 15s)")
}

// check refuses what makes no sense.
func (w *wanting) check(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("capacity") && w.capacity < 1:
		return usage("-n %d: want 1 or more", w.capacity)
	case w.weight < 1:
		return usage("--weight %d: want 1 or more", w.weight)
	case c.Flags().Changed("wait") && w.wait < 0:
		return usage("--wait %v: want 0 or more", w.wait)
	case c.Flags().Changed("wait") && w.noWait:
		return usage("both --wait and --no-wait: want one of them")
	case c.Flags().Changed("ttl") && w.ttl <= 0:
		return usage("--ttl %v: want more than 0, as 15s", w.ttl)
	case w.capacity > 0 && w.weight > w.capacity:
		return usage("--weight %d of -n %d: that many can never be had", w.weight, w.capacity)
	}
	if w.noWait {
		w.wait = 0
	}
	return nil
}

func (p *program) runCommand() *cobra.Command {
	var (
		want      wanting
		about     string
		killAfter time.Duration
		onFull    int
	)
	c := &cobra.Command{
		Use:               "run NAME [-n CAPACITY] [flags] -- COMMAND [ARGUMENT…]",
		ValidArgsFunction: p.names,
		Short:             "Run a command while holding a permit",
		Long: `Run a command while holding a permit of a semaphore, so that at most so many run
at a time. It waits in line until it is its turn; after two seconds it says who
holds, and where in line it is.

The command runs in the foreground, with this one's input, output and exit code.
There is no shell in between: for pipes and variables use sh -c '…'. Signals go to
the command and all that it has started.

When this process is killed (kill -9, out of memory):
  host:      the command holds the permit until it has ended, too
  engines    the command is killed (on Linux; elsewhere it goes on, and others are
             let in when the TTL has passed)

When the lease of an engine is lost (the network is cut, the machine was asleep, an
operator took it away), the command gets SIGTERM, then SIGKILL before others are
let in.

The command finds in its environment SEMA_NAME and, of an engine, SEMA_LEASE and
SEMA_FENCE, a number that rises with every permit: what the command writes to can
refuse a number that is lower than one it has seen. With more than one permit, it
refuses what is lower than the highest SEMA_FENCE_FLOOR it has seen.

Exit codes:
  the command's own; 128+n if signal n ended it
   64  wrong usage                     76  the lease was lost
   69  the engine does not answer     126  the command cannot be run
   75  no permit (see --on-full)      127  there is no such command`,
		Example: `  # A cron job that must not overlap itself; skipping a turn is fine.
  */5 * * * *  sema run sync -n 1 --no-wait --on-full 0 -- ./sync.sh

  # Four builds at a time on this machine, whoever starts them.
  sema run builds -n 4 -- make -j2

  # 24 of the 80 gigabytes of a GPU; wait ten minutes at most.
  sema run gpu -n 80 --weight 24 --wait 10m -- ./train.py

  # Ten at a time on all machines.
  SEMA_STORE=redis://redis.internal:6379 sema run partner-api -n 10 -- ./call.sh`,
		Args: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case len(args) == 0:
				return errors.New("which semaphore? sema run NAME -- COMMAND")
			case dash < 0:
				return fmt.Errorf("put -- before the command: sema run %s -- COMMAND", args[0])
			case dash != 1:
				return fmt.Errorf("want one name before the --, not %d", dash)
			case len(args) == 1:
				return errors.New("which command? it follows the --")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := want.check(c); err != nil {
				return err
			}
			if killAfter < 0 || c.Flags().Changed("kill-after") && killAfter == 0 {
				return usage("--kill-after %v: want more than 0, as 10s", killAfter)
			}
			if onFull < 0 || onFull > 255 {
				return usage("--on-full %d: want an exit code, 0 to 255", onFull)
			}
			err := p.open(context.Background(), func(s scope.Scope) error {
				return runner.Run(context.Background(), s, runner.Options{
					Want: scope.Want{
						Name: args[0], Capacity: want.capacity, TTL: want.ttl, Wait: want.wait, Command: filepath.Base(args[1]), About: about,
						Warn: func(text string) { p.say("warning: %s", text) },
					},
					Weight: want.weight, Command: args[1:], KillAfter: killAfter, Say: p.say,
				})
			})
			if code, text := verdict(err); code == codeNotObtained && isRefusal(err) {
				p.say("%s", text)
				return &runner.Exit{Code: onFull}
			}
			return err
		},
	}
	want.flags(c)
	c.Flags().StringVar(&about, "about", "", "what it is for, for people who look ('sema show'); on host: they see the command itself")
	c.Flags().DurationVar(&killAfter, "kill-after", 0, "SIGKILL so long after the command was told to end (default: when others may be let in)")
	c.Flags().IntVar(&onFull, "on-full", codeNotObtained, "exit with `CODE` if there is no permit")
	return c
}

// isRefusal tells this program's refusals from a command's exit code.
func isRefusal(err error) bool {
	var exit *runner.Exit
	return !errors.As(err, &exit) && (errors.Is(err, sema.ErrFull) || errors.Is(err, sema.ErrTimeout) || errors.Is(err, sema.ErrDraining))
}
