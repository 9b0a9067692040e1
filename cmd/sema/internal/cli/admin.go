package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

func (p *program) setCommand() *cobra.Command {
	var capacity, ramp, maxWaiters int64
	c := &cobra.Command{
		Use:               "set NAME [--capacity N] [--ramp N] [--max-waiters N]",
		ValidArgsFunction: p.names,
		Short:             "Change a semaphore for all who use it",
		Long: `Change a semaphore for all who use it, at once. To lower the capacity takes nothing
from who holds: nobody is let in until enough is given back. At 0 it is paused.

With a ramp the capacity rises by so many permits a second, so that what is behind
it is not hit all at once, and a number that is far too high can be set right.

On host: only the capacity can be set, and it counts as long as anybody uses the
semaphore: who comes when nobody does sets it anew (sema run -n).`,
		Example: `  sema set partner-api --capacity 20 --ramp 2
  sema set partner-api --capacity 0      # pause
  sema set partner-api --max-waiters 100`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().Int64VarP(&capacity, "capacity", "n", 0, "how many may be held at a time")
	c.Flags().Int64Var(&ramp, "ramp", 0, "permits a second by which the capacity rises; 0: at once")
	c.Flags().Int64Var(&maxWaiters, "max-waiters", 0, "how many may wait; 0: no bound")
	c.RunE = func(c *cobra.Command, args []string) error {
		var change scope.Change
		changed := 0
		for _, f := range []struct {
			name  string
			value *int64
			to    **int64
		}{{"capacity", &capacity, &change.Capacity}, {"ramp", &ramp, &change.Ramp}, {"max-waiters", &maxWaiters, &change.MaxWaiters}} {
			if !c.Flags().Changed(f.name) {
				continue
			}
			if changed++; *f.value < 0 {
				return usage("--%s %d: want 0 or more", f.name, *f.value)
			}
			*f.to = f.value
		}
		if changed == 0 {
			return usage("what is to change? --capacity, --ramp or --max-waiters")
		}
		return p.briefly(func(ctx context.Context, s scope.Scope) error {
			if err := s.Configure(ctx, args[0], change); err != nil {
				return err
			}
			return p.report(ctx, s, args[0])
		})
	}
	return c
}

// report says how a semaphore is after a change.
func (p *program) report(ctx context.Context, s scope.Scope, name string) error {
	state, err := s.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return p.writeStates([]scope.State{state}, true, table)
}

func (p *program) drainCommand() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:               "drain NAME",
		ValidArgsFunction: p.names,
		Short:             "Let nobody in, and wait until nothing is held",
		Long: `Let nobody in, and refuse those who wait, on all machines; then wait until nothing
is held: before maintenance of what the semaphore guards. Interrupted, or when
--wait is over, it stays draining (exit code 75); 'sema resume' opens it again.

Not on host:, where nobody would remember it: use 'sema set NAME --capacity 0'.`,
		Example: `  sema drain db && ./migrate-database.sh && sema resume db
  sema drain db --wait 0    # do not wait for what is held`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().DurationVar(&wait, "wait", -1, "wait so long at most (default: until nothing is held)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(func(ctx context.Context, s scope.Scope) error {
			if wait >= 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, max(wait, patience/20))
				defer cancel()
			}
			return p.drain(ctx, s, args[0])
		})
	}
	return c
}

func (p *program) drain(ctx context.Context, s scope.Scope, name string) error {
	err := s.Drain(ctx, name)
	if err == nil {
		p.say("%q is draining, and nothing of it is held; 'sema resume %s' opens it again", name, name)
		return nil
	}
	if ctx.Err() == nil {
		return err
	}
	looking, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errPatience)
	defer cancel()
	state, lookErr := s.Inspect(looking, name)
	if lookErr != nil {
		return lookErr
	}
	if !state.Draining {
		return errPatience // the engine was too slow to hear of it
	}
	return notYet(fmt.Sprintf("%q is draining, and permits are still held: %d; 'sema show %s' says by whom, 'sema resume %s' opens it again",
		name, state.InUse, name, name))
}

func (p *program) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume NAME",
		ValidArgsFunction: p.names,
		Short:             "Open a semaphore that was drained",
		Example:           `  sema resume db`,
		Args:              cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.briefly(func(ctx context.Context, s scope.Scope) error {
				if err := s.Resume(ctx, args[0]); err != nil {
					return err
				}
				return p.report(ctx, s, args[0])
			})
		},
	}
}

func (p *program) rmCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:               "rm NAME…",
		ValidArgsFunction: p.names,
		Aliases:           []string{"delete"},
		Short:             "Remove semaphores",
		Long: `Remove semaphores. Who holds a permit of an engine's loses it, and hears of that
with the next sign of life: drain it first. On host: what is in use is not removed,
and there is no need to: an unused one is a few kilobytes.`,
		Example: `  sema drain old && sema rm old --yes`,
		Args:    cobra.MinimumNArgs(1),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(func(ctx context.Context, s scope.Scope) error {
			for _, name := range args {
				if err := p.remove(ctx, s, name, yes); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

func (p *program) remove(ctx context.Context, s scope.Scope, name string, yes bool) error {
	state, err := s.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if !s.Host() && (state.InUse > 0 || state.Waiting > 0) {
		question := fmt.Sprintf("%q is in use (%d held, %d waiting); those who hold lose their permits. Remove it?", name, state.InUse, state.Waiting)
		if err := p.confirm(yes, question); err != nil {
			return err
		}
	}
	return s.Delete(ctx, name)
}

func (p *program) forceReleaseCommand() *cobra.Command {
	var (
		now, yes bool
		why      string
	)
	c := &cobra.Command{
		Use:               "force-release NAME LEASE",
		ValidArgsFunction: p.names,
		Short:             "Take a permit away from who holds it",
		Long: `Take a permit away from who holds it. 'sema show NAME' has the lease's number. The
holder is told by whom and why, and the permit is free when it has heard of that or
is dead: 'sema run' ends its command with SIGTERM, then SIGKILL.

With --now the permit is free at once, and somebody else is let in while the holder
may still be at work.

Not on host:, where a permit is free when the process that holds it has ended.`,
		Example: `  sema show db
  sema force-release db 1763220000000001 --why 'stuck since noon'`,
		Args: cobra.ExactArgs(2),
	}
	c.Flags().BoolVar(&now, "now", false, "do not wait until the holder has heard of it; asks first")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "with --now: do not ask")
	c.Flags().StringVar(&why, "why", "", "for the holder to read")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(func(ctx context.Context, s scope.Scope) error {
			if s.Host() {
				return s.ForceRelease(ctx, args[0], fleet.Revocation{})
			}
			id, _, _ := strings.Cut(args[1], ".") // acquire prints more than its number
			lease, err := strconv.ParseUint(id, 10, 64)
			if err != nil {
				return usage("lease %q: want a number, as 'sema show %s' has it", args[1], args[0])
			}
			state, err := s.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if !hasLease(state, lease) {
				return fmt.Errorf("%q has no lease %d; 'sema show %s' has those there are", args[0], lease, args[0])
			}
			if now {
				if err := p.confirm(yes, "Others are let in while the holder may still be at work. Go on?"); err != nil {
					return err
				}
			}
			return s.ForceRelease(ctx, args[0], fleet.Revocation{Lease: protocol.Seq(lease), AtOnce: now, By: operator(), Why: why})
		})
	}
	return c
}

func hasLease(s scope.State, lease uint64) bool {
	for _, h := range s.Holders {
		if h.Lease == lease {
			return true
		}
	}
	return false
}

// notYet is for what was begun, and is not over: the code of who may try again.
func notYet(text string) error { return &runner.Exit{Code: codeNotObtained, Err: errors.New(text)} }

// operator is who takes a permit away.
func operator() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
