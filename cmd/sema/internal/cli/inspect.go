package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

func (p *program) lsCommand() *cobra.Command {
	var page scope.Page
	c := &cobra.Command{
		Use:     "ls [PREFIX] [--limit N] [--after NAME]",
		Aliases: []string{"list"},
		Short:   "List semaphores",
		Long: `List semaphores with the permits in use, the capacity and the number of waiters.
PREFIX lists only names that begin with it. Nothing is created or changed.

STATUS is open, full, draining ('sema drain'), paused (capacity 0) or rising (the
capacity is being raised, see 'sema set --ramp'). At a terminal, long names are cut
in the middle; -o wide and -o json have complete names. Over sema:// they also have
what the server has measured in the last 5 minutes: grants a second, the 99th
percentiles of waits and holds, and how long the first of the queue has waited. --limit
and --after list a part; the number of further semaphores is printed to stderr.

Over sema:// the list has declared semaphores before their first use. On host: it has all
semaphores of the directory, also unused ones. Damaged and foreign files in the directory
are reported on stderr.`,
		Example: `  sema ls
  sema ls team/ -o wide
  sema ls -o json | jq -r '.[] | select(.free == 0) | .name'`,
	}
	output := outputFlag(c, table, wide, jsonLines)
	c.Flags().StringVar(&page.After, "after", "", "list only names after `NAME`")
	c.Flags().IntVar(&page.Limit, "limit", 0, "list at most `N` semaphores (default: all)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkLimit(c, page.Limit); err != nil {
			return err
		}
		prefix := ""
		if len(args) == 1 {
			prefix = args[0]
		}
		return p.with(dial.Reading, func(ctx context.Context, s scope.Scope) error {
			listing, err := list(ctx, s, prefix, page)
			if err != nil {
				return err
			}
			if *output != table {
				s.Measure(ctx, prefix, listing.States)
			}
			if err := p.writeList(listing.States, *output); err != nil {
				return err
			}
			for _, bad := range listing.Bad {
				facts, hint := explain.Error(bad)
				p.warn(facts, hint)
			}
			if listing.More > 0 {
				p.printf("%s after these", figure.Count(int64(listing.More), "more semaphore"))
				p.hint("'sema ls%s --after %s' lists them", printable.Prefixed(" ", prefix), printable.Arg(listing.Next))
			}
			return nil
		})
	}
	return c
}

func checkLimit(c *cobra.Command, limit int) error {
	if c.Flags().Changed("limit") && limit < 1 {
		return exit.Misuse("--limit %d: want 1 or more", limit)
	}
	return nil
}

// list reads a page of semaphores, a thousand per request.
func list(ctx context.Context, s scope.Scope, prefix string, page scope.Page) (scope.Listing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errTimeout)
	defer cancel()
	return s.List(ctx, prefix, page)
}

// listTimeout bounds a list of any length.
const listTimeout = 4 * replyTimeout

func (p *program) writeList(states []scope.State, f format) error {
	if f == jsonLines {
		for i := range states {
			states[i].Holders, states[i].Waiters = nil, nil // only show has them
		}
		return writeJSON(p.out, states)
	}
	if len(states) == 0 {
		p.printf("no semaphores")
		p.hint("'sema run NAME -n 1 -- COMMAND' creates one")
		return nil
	}
	return p.writeStates(states, f == wide, f)
}

func (p *program) showCommand() *cobra.Command {
	var (
		limit int
		after uint64
	)
	c := &cobra.Command{
		Use:               "show NAME",
		ValidArgsFunction: p.names,
		Short:             "Show the holders and waiters of a semaphore",
		Long: `Show a semaphore: its configuration, its holders, the oldest first, and its waiters,
the next first.

  LEASE   the number for 'sema revoke'
  SLOTS   the numbers of its permits, if the semaphore is numbered
  FOR     how long a permit is held, by the clock of the store
  SEEN    the last heartbeat of the holder; a TTL later it loses its permit
  ABOUT   the description of the holder (--about, labels, its command)

--limit shows a part of long lists, and the number of further entries.

Over sema://, waits, holds and grants are what the server has measured in the last 5
minutes. 'sema advise' reports what they mean for the capacity.

On host: the holders are processes with their command lines; only the number of
waiters is known.`,
		Example: `  sema show builds
  sema show partner-api -o json | jq '.holders[].host'`,
	}
	output := outputFlag(c, table, wide, jsonLines)
	c.Flags().IntVar(&limit, "limit", 0, "show at most `N` holders and N waiters (default: all)")
	c.Flags().Uint64Var(&after, "after", 0, "show only holders after `LEASE`")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkLimit(c, limit); err != nil {
			return err
		}
		return p.briefly(dial.Reading, func(ctx context.Context, s scope.Scope) error {
			if s.Host() && after != 0 {
				return exit.Misuse("--after %d: permits of this machine have no lease", after)
			}
			state, err := s.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			measured := []scope.State{state}
			s.Measure(ctx, args[0], measured)
			return p.writeState(measured[0].Cut(after, limit), s.Now(ctx), *output)
		})
	}
	return c
}

// writeState writes a semaphore with its holders and waiters. now is on the clock of their
// times.
func (p *program) writeState(s scope.State, now time.Time, f format) error {
	if f == jsonLines {
		return writeJSON(p.out, s)
	}
	if err := p.writeStates([]scope.State{s}, true, f); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		all   []scope.Participant
		more  int
	}{{"Holders, the oldest first:", s.Holders, s.MoreHolders}, {"Waiters, the next first:", s.Waiters, s.MoreWaiters}} {
		if len(part.all) == 0 {
			continue
		}
		fmt.Fprintf(p.out, "\n%s\n", part.title)
		if err := p.writeParticipants(part.all, now, f); err != nil {
			return err
		}
		if part.more > 0 {
			fmt.Fprintf(p.out, "… and %d more\n", part.more)
		}
	}
	if text := timesText(s); text != "" {
		fmt.Fprintf(p.out, "\n%s\n", text)
	}
	if s.MoreHolders > 0 {
		if last := s.Holders[len(s.Holders)-1].Lease; last != 0 {
			p.hint("'sema show %s --after %d' lists the next holders", printable.Arg(s.Name), last)
		}
	}
	return nil
}

func (p *program) watchCommand() *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:               "watch NAME",
		ValidArgsFunction: p.names,
		Short:             "Print a line whenever a semaphore changes",
		Long: `Print a line whenever a semaphore changes, until interrupted (Ctrl-C). With -o wide
the holders follow; with -o json each line is an object as in 'sema show -o json'.`,
		Example: `  sema watch builds
  sema watch builds -o json | jq -r '.in_use'`,
	}
	output := outputFlag(c, table, wide, jsonLines)
	flags.Duration(c.Flags(), &every, "every", time.Second, "read the semaphore every `DURATION`")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if every < 10*time.Millisecond {
			return exit.Misuse("--every %v: want 10ms or more", every)
		}
		return p.with(dial.Reading, func(ctx context.Context, s scope.Scope) error { return p.watch(ctx, s, args[0], every, *output) })
	}
	return c
}

// watch prints changes until ctx ends. It continues while the store cannot be reached, and
// reports that once. An interrupt is not an error.
func (p *program) watch(ctx context.Context, s scope.Scope, name string, every time.Duration, f format) error {
	var last *scope.State
	away := ""
	for tick := time.NewTicker(every); ; {
		state, err := s.Inspect(ctx, name)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last == nil:
			return err
		case err != nil:
			if exit.Code(err) != exit.Unavailable {
				return err
			}
			if text := explain.Text(err); text != away {
				p.printf("%s", text)
				away = text
			}
		case last == nil || !last.Equal(state):
			last, away = &state, ""
			if err := p.writeChange(state, f); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *program) writeChange(s scope.State, f format) error {
	if f == jsonLines {
		return printable.WriteJSON(p.out, s, "")
	}
	line := fmt.Sprintf("%s  %d of %d in use, %d waiting, %s", time.Now().Format(time.TimeOnly), s.InUse, s.Capacity, s.Waiting, p.paintStatus(s.Status()))
	if f == wide {
		for _, h := range s.Holders {
			line += printable.Sprintf("\n          %d  %s process %d  %s", h.Weight, h.Host, h.Process, h.About)
		}
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// names completes the name of a semaphore in a shell, within a second.
func (p *program) names(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var names []string
	_ = p.open(ctx, dial.Reading, func(s scope.Scope) error {
		all, err := s.Names(ctx, begun)
		for _, name := range all {
			if name == printable.Line(name) { // other names cannot be typed
				names = append(names, name)
			}
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
