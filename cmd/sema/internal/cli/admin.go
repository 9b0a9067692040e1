package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

func (p *program) setCommand() *cobra.Command {
	var capacity, ramp int64
	var maxWaiters string
	c := &cobra.Command{
		Use:               "set NAME [--capacity N] [--ramp N] [--max-waiters N]",
		ValidArgsFunction: p.names,
		Short:             "Change the capacity of a semaphore, for all its users",
		Long: `Change the configuration of a semaphore, at once and for all its users.

A lower capacity revokes nothing: no permit is granted until enough are released. A
capacity of 0 pauses the semaphore. With a ramp, a higher capacity is reached by N
permits per second, so that the load on the protected resource rises slowly.

On host: there is no ramp.`,
		Example: `  sema set partner-api --capacity 20 --ramp 2
  sema set partner-api --capacity 0      # pause
  sema set partner-api --max-waiters 100
  sema set partner-api --max-waiters none`,
	}
	c.Flags().Int64VarP(&capacity, "capacity", "n", 0, "at most `N` permits are held at a time; 0 pauses")
	c.Flags().Int64Var(&ramp, "ramp", 0, "raise the capacity by `N` permits per second; 0: at once")
	c.Flags().StringVar(&maxWaiters, "max-waiters", "", "at most `N` acquires wait, more are rejected; 0: no waiters; none: no bound")
	c.RunE = func(c *cobra.Command, args []string) error {
		var change scope.Change
		changed := 0
		for _, f := range []struct {
			name  string
			value *int64
			to    **int64
		}{{"capacity", &capacity, &change.Capacity}, {"ramp", &ramp, &change.Ramp}} {
			if !c.Flags().Changed(f.name) {
				continue
			}
			if changed++; *f.value < 0 {
				return exit.Misuse("--%s %d: want 0 or more", f.name, *f.value)
			}
			*f.to = f.value
		}
		if c.Flags().Changed("max-waiters") {
			bound, err := parseMaxWaiters(maxWaiters)
			if err != nil {
				return err
			}
			change.MaxWaiters = &bound
			changed++
		}
		if changed == 0 {
			return exit.Misuse("nothing to change").With("give --capacity N, --ramp N or --max-waiters N")
		}
		return p.briefly(dial.Changing, func(ctx context.Context, s scope.Scope) error {
			if err := s.Configure(ctx, args[0], change); err != nil {
				return err
			}
			return p.report(ctx, s, args[0])
		})
	}
	return c
}

// parseMaxWaiters parses the value of --max-waiters.
func parseMaxWaiters(text string) (scope.MaxWaiters, error) {
	if text == "none" {
		return scope.NoBound, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, exit.Misuse("--max-waiters %s: want a whole number, 0 or more, or none", printable.Arg(text))
	}
	return scope.MaxWaiters(n), nil
}

// report writes the state of a semaphore after a change.
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
		Short:             "Grant no more permits, and wait until none is held",
		Long: `Reject waiters and new acquires, on all machines, and wait until no permit is held: for
maintenance of the protected resource. 'sema resume' ends the draining.

If this command is interrupted, or --wait has passed, the semaphore stays draining, and
the exit code is 75.`,
		Example: `  sema drain db && ./migrate-database.sh && sema resume db
  sema drain db --wait 0    # do not wait for held permits`,
	}
	flags.Duration(c.Flags(), &wait, "wait", flags.Absent, "wait for `DURATION` at most (default: until no permit is held)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(dial.Changing, func(ctx context.Context, s scope.Scope) error {
			if wait >= 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, max(wait, replyTimeout/20))
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
		p.printf("%q is draining, and no permit is held", name)
		p.hint("'sema resume %s' ends the draining", printable.Arg(name))
		return nil
	}
	if ctx.Err() == nil {
		return err
	}
	looking, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), replyTimeout, errTimeout)
	defer cancel()
	state, lookErr := s.Inspect(looking, name)
	if lookErr != nil {
		return lookErr
	}
	if !state.Draining {
		return errTimeout // the store did not reply in time
	}
	return exit.Errorf(exit.NoPermit, "%q is draining, and permits are still held: %d", name, state.InUse).
		With("'sema show %s' lists the holders, 'sema resume %s' ends the draining", printable.Arg(name), printable.Arg(name))
}

func (p *program) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume NAME",
		ValidArgsFunction: p.names,
		Short:             "Grant permits again after 'sema drain'",
		Long: `End the draining of a semaphore: permits are granted again, on all machines. The
capacity is as it was before.`,
		Example: `  sema resume db`,
		RunE: func(_ *cobra.Command, args []string) error {
			return p.briefly(dial.Changing, func(ctx context.Context, s scope.Scope) error {
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
		Long: `Remove semaphores. If one is in use, sema asks first: its holders lose their permits
with their next heartbeat. Drain it first.

On host: a semaphore in use cannot be removed. There is no need to remove others: an
unused semaphore takes a few kilobytes.`,
		Example: `  sema drain old && sema rm old --yes`,
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "remove without asking")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(dial.Changing, func(ctx context.Context, s scope.Scope) error {
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
		question := fmt.Sprintf("%q is in use (%d held, %d waiting); its holders lose their permits. Remove it?", name, state.InUse, state.Waiting)
		if err := p.confirm(yes, question); err != nil {
			return err
		}
	}
	return s.Delete(ctx, name)
}

func (p *program) revokeCommand() *cobra.Command {
	var (
		now, yes bool
		why      string
	)
	c := &cobra.Command{
		Use:               "revoke NAME LEASE",
		ValidArgsFunction: p.names,
		Short:             "Revoke a permit of another holder",
		Long: `Revoke a permit. LEASE is its number in 'sema show NAME'. The holder is notified, with
your name and the reason, and the permit is free when the holder has confirmed or
has expired: 'sema run' ends its command with SIGTERM, then SIGKILL.

With --now the permit is free at once: another holder is admitted while this one may
still be working.

This needs a store. On host: end the process that holds the permit.`,
		Example: `  sema show db
  sema revoke db 1763220000000001 --why 'stuck since noon'`,
	}
	c.Flags().BoolVar(&now, "now", false, "free the permit without the holder's confirmation; asks first")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "with --now: do not ask first")
	c.Flags().StringVar(&why, "why", "", "`TEXT` for the holder: the reason")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.with(dial.Changing, func(ctx context.Context, s scope.Scope) error {
			if s.Host() {
				return s.Revoke(ctx, args[0], scope.Revocation{})
			}
			id, _, _ := strings.Cut(args[1], ".") // the id that acquire prints starts with the number
			lease, err := strconv.ParseUint(id, 10, 64)
			if err != nil {
				return exit.Misuse("lease %q: want a number", args[1]).With("'sema show %s' lists the leases", printable.Arg(args[0]))
			}
			state, err := s.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if !hasLease(state, lease) {
				return exit.Errorf(exit.Failed, "%q has no lease %d", args[0], lease).With("'sema show %s' lists the leases", printable.Arg(args[0]))
			}
			if now {
				if err := p.confirm(yes, "Another holder is admitted while this one may still be working. Revoke at once?"); err != nil {
					return err
				}
			}
			return s.Revoke(ctx, args[0], scope.Revocation{Lease: lease, AtOnce: now, Why: why})
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
