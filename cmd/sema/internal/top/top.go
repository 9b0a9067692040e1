// Package top implements the command that shows the semaphores of a scope full screen, and polls
// them: holders, waiters, and use of the capacity. An operator can drain, resize and revoke, after
// a confirmation that contains the numbers. Programs use "sema ls -o json".
//
// The model (model.go, keys.go, view.go, detail.go) is pure: it receives messages and renders its
// state. A poller (poller.go) reads the scope.
package top

import (
	"context"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/store"
)

// Command returns the command "sema top".
func Command(named func() (store.URL, error)) *cobra.Command {
	var (
		every  time.Duration
		filter string
	)
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch all semaphores, full screen",
		Long: `Watch all semaphores with their holders and waiters, full screen. The semaphores
with the most waiters come first, whatever their names are.

  ↑ ↓ Enter Esc   choose a semaphore, show its holders and waiters, go back
  s  /            sort by waiters, use or name (120 columns: waits, grants);
                  filter as you type: db is:full wait>5s
  d  r  c  x      drain, resume, set the capacity, revoke a permit (all ask first)
  ?  q            help, quit`,
		Example: `  sema top --store redis://localhost:6379
  sema top --filter tenant- --every 500ms`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case every < leastPeriod:
				return exit.Misuse("--every %v: want %v or more", every, leastPeriod)
			case !isTerminal(c.InOrStdin()) || !isTerminal(c.OutOrStdout()):
				return exit.Misuse("input and output must be a terminal").With("use 'sema ls -o json' in scripts")
			}
			// Log lines of stores would overwrite the screen.
			slog.SetDefault(slog.New(slog.DiscardHandler))
			u, err := named()
			if err != nil {
				return err
			}
			return watch(c, u, every, filter)
		},
	}
	flags.Duration(c.Flags(), &every, "every", time.Second, "read the store every `DURATION`")
	c.Flags().StringVar(&filter, "filter", "", "show only semaphores whose names begin with `PREFIX`")
	return c
}

// leastPeriod is the shortest interval between polls.
const leastPeriod = 100 * time.Millisecond

// openTimeout bounds opening the store and the first round trip.
const openTimeout = 5 * time.Second

func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(f.Fd())
}

func watch(c *cobra.Command, u store.URL, every time.Duration, prefix string) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s, err := open(ctx, u, prefix)
	if err != nil {
		return err
	}
	defer closeScope(s)
	m := newModel(ctx, &poller{scope: s}, u.String(), every, prefix)
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithInput(c.InOrStdin()), tea.WithOutput(c.OutOrStdout())).Run()
	if ctx.Err() != nil {
		return &exit.Error{Code: exit.Interrupted}
	}
	return err
}

// open opens the scope and lists it once, so that an unreachable store is an error before the
// screen is drawn.
func open(ctx context.Context, u store.URL, prefix string) (scope.Scope, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := dial.Scope(ctx, u, dial.Reading)
	if err != nil {
		return nil, err
	}
	if _, err := s.Names(ctx, prefix); err != nil {
		closeScope(s)
		return nil, err
	}
	return s, nil
}

func closeScope(s scope.Scope) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_ = s.Close(ctx) // the user has quit
}
