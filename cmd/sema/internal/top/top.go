// Package top is the command that shows the semaphores of an engine as they are,
// again and again, full screen: who holds what, who waits, and what is about to
// run out; and that lets somebody on call drain, resize and take away, after a
// question that names the numbers. For programs there is "sema ls -o json".
//
// The model (model.go, keys.go, view.go, detail.go) is pure: it is given messages
// and draws what it knows. What it knows comes from a source (source.go).
package top

import (
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/store"
)

// Command is "sema top".
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
  s  /            sort by waiters, use or name; filter as you type
  d  r  c  x      drain, resume, set the capacity, revoke a permit (all ask first)
  q               quit`,
		Example: `  sema top --store redis://localhost:6379
  sema top --filter tenant- --every 500ms`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case every < shortest:
				return exit.Misuse("--every %v: want %v or more", every, shortest)
			case !isTerminal(c.InOrStdin()) || !isTerminal(c.OutOrStdout()):
				return exit.Misuse("there is no terminal to draw on").With("use 'sema ls -o json' in scripts")
			}
			// What stores log would be written over the screen.
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

// shortest is how often one may look.
const shortest = 100 * time.Millisecond

func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(f.Fd())
}

func watch(c *cobra.Command, u store.URL, every time.Duration, prefix string) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	from, err := openSource(ctx, u)
	if err != nil {
		return err
	}
	defer from.(io.Closer).Close()
	m := newModel(ctx, from, u.String(), every, prefix)
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithInput(c.InOrStdin()), tea.WithOutput(c.OutOrStdout())).Run()
	if ctx.Err() != nil {
		return &exit.Error{Code: exit.Interrupted}
	}
	return err
}
