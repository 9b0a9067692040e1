// Package cli contains the commands of sema: their flags and their output. Packages scope
// and runner, and the library, do the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/doctor"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/loadtest"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/serve"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/cmd/sema/internal/top"
	"github.com/sema-go/sema/cmd/sema/internal/tuning"
)

// commands returns all commands in groups. Add a command that has its own package here.
func (p *program) commands() []group {
	return []group{
		{"Run a command under a permit:", []*cobra.Command{
			p.runCommand(), p.acquireCommand(), p.renewCommand(), p.releaseCommand(),
		}},
		{"Inspect semaphores:", []*cobra.Command{
			p.lsCommand(), p.showCommand(), p.watchCommand(), top.Command(p.storeURL), p.adviseCommand(),
		}},
		{"Change semaphores, for all their users:", []*cobra.Command{
			p.setCommand(), p.drainCommand(), p.resumeCommand(), p.revokeCommand(), p.rmCommand(),
		}},
		{"Servers and stores:", []*cobra.Command{
			serve.Command(thisBuild().Version), serve.TokenCommand(), doctor.Command(p.storeURL), loadtest.Command(p.storeURL), tuning.Command(),
			p.migrateCommand(), p.versionCommand(),
		}},
	}
}

// runCommand returns 'sema run', which completes names.
func (p *program) runCommand() *cobra.Command {
	c := runner.Command(runner.Program{
		Open: func(ctx context.Context, do func(scope.Scope) error) error {
			return p.open(ctx, dial.Creating, do)
		},
		Messages: p.err,
	})
	c.ValidArgsFunction = p.names
	return c
}

// A group is a set of commands that the help lists together.
type group struct {
	title    string
	commands []*cobra.Command
}

// A program is one run of sema.
type program struct {
	in    *os.File
	out   *output
	err   io.Writer
	args  []string
	store string // the value of --store
	began bool   // a command was started; earlier errors are wrong usage
}

// Main runs sema and returns its exit code.
func Main(args []string, in, out, errs *os.File) int {
	p := &program{in: in, out: &output{File: out}, err: errs, args: args}
	root := p.root()
	root.SetArgs(args)
	err := root.Execute()
	if err != nil && !p.began {
		err = &exit.Error{Code: exit.Usage, Err: err}
	}
	if lost := p.out.failure(); lost != nil && (err == nil || errors.Is(err, p.out.err)) {
		err = lost
	}
	explain.Print(p.err, err)
	return exit.Code(err)
}

// printf writes a message to stderr. Its arguments may contain untrusted text.
func (p *program) printf(format string, args ...any) {
	explain.Printf(p.err, format, args...)
}

// warn writes a warning, and its hint if it is not empty, to stderr.
func (p *program) warn(facts, hint string) { explain.Warn(p.err, facts, hint) }

// hint writes advice to stderr, on its own line.
func (p *program) hint(format string, args ...any) { explain.Hint(p.err, format, args...) }

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sema",
		Short: "Limit how many commands run at a time, on one machine or on many",
		Long: `sema limits how many commands run at a time, on one machine or on many.

A cron job that must not overlap itself:
  sema run nightly -n 1 --no-wait -- ./backup.sh

At most four builds on this machine, whichever shell starts them:
  sema run builds -n 4 -- make

At most ten calls of an API from all machines, through a Redis that all of them reach:
  export SEMA_STORE=redis://redis.internal:6379
  sema run partner-api -n 10 -- ./sync.py

A semaphore has a name and a number of permits, its capacity. On one machine it needs
no server, no setup and no clean-up after a crash. For many machines, name a store
that all of them reach, with --store or SEMA_STORE (which keeps passwords out of the
list of processes):

  host:                        this machine, this user (the default)
  host:?group=builders         this machine, members of a group
  host:/mnt/shared             containers of this machine, in a mounted directory
  redis://host:6379            also rediss://, Sentinel, Cluster
  postgres://user@host/db
  etcd://a:2379,b:2379,c:2379
  sema://host:7362             a server, see 'sema serve'
  sqlite:///path               one process at a time

Exit codes ('sema run' has those of its command, too):
` + exit.Describe() + "\n",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		},
		PersistentPreRun:  func(*cobra.Command, []string) { p.began = true },
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.PersistentFlags().StringVar(&p.store, "store", "", "`URL` of the store (default $SEMA_STORE, or host:)")
	for _, g := range p.commands() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			if c.Name() != "run" && c.Name() != "tune" { // their arguments are another command's
				c.Args = positional
			}
			root.AddCommand(c)
		}
	}
	root.SetIn(p.in)
	root.SetOut(p.out) // before cobra creates its completion command, which keeps the writer
	root.SetErr(p.err)
	help := helpCommand()
	help.Args = positional
	root.SetHelpCommand(help)
	explainCompletion(root)
	root.SetFlagErrorFunc(p.flagError)
	return root
}

// storeURL returns the URL of the store, from --store or the environment.
func (p *program) storeURL() (store.URL, error) { return store.FromFlag(p.store) }

// replyTimeout bounds requests that do not wait for a permit.
const replyTimeout = 10 * time.Second

var errTimeout = fmt.Errorf("%w: no reply within %v", sema.ErrUnavailable, replyTimeout)

// with opens the scope for a command that a signal may interrupt.
func (p *program) with(access dial.Access, do func(context.Context, scope.Scope) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.open(ctx, access, func(s scope.Scope) error { return do(ctx, s) })
}

// briefly calls with, for commands that a healthy store completes at once, and bounds do by
// replyTimeout.
func (p *program) briefly(access dial.Access, do func(context.Context, scope.Scope) error) error {
	return p.with(access, func(ctx context.Context, s scope.Scope) error {
		ctx, cancel := context.WithTimeoutCause(ctx, replyTimeout, errTimeout)
		defer cancel()
		return do(ctx, s)
	})
}

// open opens the scope for a command. It ignores errors of closing: the result was printed
// before.
func (p *program) open(ctx context.Context, access dial.Access, do func(scope.Scope) error) error {
	opening, cancel := context.WithTimeoutCause(ctx, replyTimeout, errTimeout)
	defer cancel()
	u, err := p.storeURL()
	if err != nil {
		return err
	}
	s, err := dial.Scope(opening, u, access)
	if err != nil {
		return err
	}
	defer p.leave(ctx, s)
	return do(s)
}

// leave closes the scope within a second: a store that does not reply must not delay the
// exit.
func (p *program) leave(ctx context.Context, s scope.Scope) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
