package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/devices"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A Program is what 'sema run' needs of the program that contains it.
type Program struct {
	// Open opens the scope of the store that the user chose, calls do, and closes it.
	Open func(ctx context.Context, do func(scope.Scope) error) error
	// Messages receives warnings and notices.
	Messages io.Writer
}

// maskOf returns the devices that --devices selects, nil without the flag.
func maskOf(name string, slots int64) (*devices.Mask, error) {
	if name == "" {
		return nil, nil
	}
	kind, err := devices.Find(name)
	if err != nil {
		return nil, err
	}
	if slots == 0 {
		return nil, exit.Misuse("--devices %s without --slots: permits need numbers to stand for devices", name).With("add --slots 1")
	}
	mask, err := kind.Outer(os.LookupEnv)
	return &mask, err
}

// Command returns 'sema run' for a program.
func Command(p Program) *cobra.Command {
	var (
		want      flags.Permits
		about     string
		device    string
		killAfter time.Duration
		onFull    int
	)
	c := &cobra.Command{
		Use:   "run NAME [-n CAPACITY] [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while holding a permit",
		Long: `Run a command while holding a permit of a semaphore, so that at most N run at a
time. While no permit is free it waits in a queue, first come, first served; after
two seconds it prints its position in the queue and the holders.

The command runs in the foreground, with the input, output and exit code of this
one. There is no shell in between: for pipes and variables use sh -c '…'. Signals
are passed on to the command and to all processes that it has started.

If sema itself is killed (kill -9, out of memory):
  host:         the command keeps the permit until it ends
  other stores  the command is killed (on Linux; elsewhere it continues, and another
                holder may be admitted after the TTL)

If the lease in a store is lost (the network is cut, the machine was asleep, an
operator revoked it), the command gets SIGTERM, and SIGKILL before another holder
is admitted.

Environment of the command:
  SEMA_NAME         the semaphore
  SEMA_LEASE        the permit, as 'sema show' and 'sema revoke' name it
  SEMA_FENCE        a number that rises with every permit. With -n 1, the resource that
                    the command writes to rejects numbers lower than the highest one seen
  SEMA_FENCE_FLOOR  with -n 2 or more, the resource rejects a SEMA_FENCE lower than the
                    highest floor seen
  SEMA_SLOTS        with --slots, the numbers of the permits: 0,3
On host: there is no lease and no fence: such a permit cannot be lost.

--slots K acquires K permits with numbers from 0 to N-1. No other holder has these
numbers, so each can stand for a device. --devices makes only these devices visible:
  cuda  CUDA_VISIBLE_DEVICES    hip  HIP_VISIBLE_DEVICES
  rocr  ROCR_VISIBLE_DEVICES    ze   ZE_AFFINITY_MASK
If the variable is set already, number 0 is the first device in it, and so on. On host:
all semaphores are numbered; in a store, those that were created with --slots.

Exit codes: the command's own, and
` + exit.Describe(exit.Usage, exit.Unavailable, exit.NoPermit, exit.Lost, exit.Denied, exit.NotExecutable, exit.NotFound, exit.Signal),
		Example: `  # A cron job that must not overlap itself: skip it while the last run is active.
  */5 * * * *  sema run sync -n 1 --no-wait --on-full 0 -- ./sync.sh

  # Four builds at a time on this machine, whichever shell starts them.
  sema run builds -n 4 -- make -j2

  # 24 of the 80 gigabytes of a GPU; wait ten minutes at most.
  sema run gpu -n 80 --weight 24 --wait 10m -- ./train.py

  # Two of the eight GPUs of this machine, which no other run uses meanwhile.
  sema run gpus -n 8 --slots 2 --devices cuda -- ./train.py

  # Ten at a time on all machines that reach this Redis.
  SEMA_STORE=redis://redis.internal:6379 sema run partner-api -n 10 -- ./call.sh`,
		Args: func(c *cobra.Command, args []string) error {
			const line = "write: sema run NAME -- COMMAND"
			switch dash := c.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return exit.Misuse("missing NAME").With(line)
			case dash < 0 && len(args) == 1:
				return exit.Misuse("missing COMMAND").With("write: sema run %s -- COMMAND", printable.Arg(args[0]))
			case dash < 0:
				return exit.Misuse("missing -- before the command").With("write: sema run %s -- %s", printable.Arg(args[0]), quoted(args[1:]))
			case dash != 1:
				return exit.Misuse("%d names before the --", dash).With(line)
			case len(args) == 1:
				return exit.Misuse("missing COMMAND after the --").With(line)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := want.Check(c.Flags()); err != nil {
				return err
			}
			if c.Flags().Changed("kill-after") && killAfter == 0 {
				return exit.Misuse("--kill-after 0s: want more than 0, such as 10s")
			}
			if onFull < 0 || onFull > 255 {
				return exit.Misuse("--on-full %d: want an exit code, 0 to 255", onFull)
			}
			mask, err := maskOf(device, want.Slots)
			if err != nil {
				return err
			}
			err = p.Open(context.Background(), func(s scope.Scope) error {
				return Run(context.Background(), s, Options{
					Want: scope.Want{
						Name: args[0], Capacity: want.Capacity, Numbered: want.Slots > 0, TTL: want.TTL, Wait: want.Wait, Command: filepath.Base(args[1]), About: about,
						Warn: func(facts, hint string) { explain.Warn(p.Messages, facts, hint) },
					},
					Weight: want.Weight, Devices: mask, Command: args[1:], KillAfter: killAfter,
					Printf: func(format string, args ...any) { explain.Printf(p.Messages, format, args...) },
				})
			})
			if isRejection(err) {
				explain.Print(p.Messages, err)
				return &exit.Error{Code: onFull}
			}
			return err
		},
	}
	want.Add(c.Flags())
	c.Flags().StringVar(&device, "devices", "", "with --slots: make only the devices with these numbers visible to the command; `KIND` is "+devices.Names())
	_ = c.RegisterFlagCompletionFunc("devices", completeDevices)
	c.Flags().StringVar(&about, "about", "", "`TEXT` for 'sema show' and other waiters: what this is for (on host: the command line is shown)")
	flags.Duration(c.Flags(), &killAfter, "kill-after", 0, "send SIGKILL `DURATION` after the first signal that ends the command (default: only when the lease is lost)")
	c.Flags().IntVar(&onFull, "on-full", exit.NoPermit, "exit with `CODE` if there is no permit")
	return c
}

// quoted returns a command as a shell reads it.
func quoted(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = printable.Arg(word)
	}
	return strings.Join(words, " ")
}

// completeDevices lists the kinds of devices for a shell.
func completeDevices(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, k := range devices.Kinds {
		names = append(names, k.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// isRejection reports whether an error means that no permit was granted. An [exit.Error]
// means that the command has ended.
func isRejection(err error) bool {
	var ended *exit.Error
	return !errors.As(err, &ended) && (errors.Is(err, sema.ErrFull) || errors.Is(err, sema.ErrTimeout) || errors.Is(err, sema.ErrDraining))
}
