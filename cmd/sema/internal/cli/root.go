// Package cli is the commands of sema: flags, output and exit codes. What they do
// is in packages scope and runner, and in the library.
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

	"github.com/sema-go/sema/cmd/sema/internal/doctor"
	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/cmd/sema/internal/loadtest"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/serve"
	"github.com/sema-go/sema/cmd/sema/internal/top"
)

// commands are all there are, by what they are for. One that is a package of its
// own is added here.
func (p *program) commands() []group {
	return []group{
		{"Run a command under a permit:", []*cobra.Command{
			p.runCommand(), p.acquireCommand(), p.renewCommand(), p.releaseCommand(),
		}},
		{"Look at semaphores:", []*cobra.Command{
			p.lsCommand(), p.showCommand(), p.watchCommand(), top.Command(p.storeURL),
		}},
		{"Change semaphores, for all their users:", []*cobra.Command{
			p.setCommand(), p.drainCommand(), p.resumeCommand(), p.revokeCommand(), p.rmCommand(),
		}},
		{"Servers and stores:", []*cobra.Command{
			serve.Command(thisBuild().Version), serve.TokenCommand(), doctor.Command(p.storeURL), loadtest.Command(p.storeURL),
			p.migrateCommand(), p.versionCommand(),
		}},
	}
}

// A group is commands that help names together.
type group struct {
	title    string
	commands []*cobra.Command
}

// A program is one call of sema.
type program struct {
	in    *os.File
	out   *output
	err   io.Writer
	args  []string
	store string // the value of --store
	began bool   // a command was started: errors before that are wrong usage
}

// Main runs sema and returns its exit code.
func Main(args []string, in, out, errs *os.File) int {
	p := &program{in: in, out: &output{File: out}, err: errs, args: args}
	root := p.root()
	root.SetArgs(args)
	err := root.Execute()
	if err != nil && !p.began {
		err = &usageError{err}
	}
	if lost := p.out.failure(); lost != nil && (err == nil || errors.Is(err, p.out.err)) {
		err = lost
	}
	code, text := status(err)
	if text != "" {
		p.say("%s", text)
	}
	return code
}

// say writes a message for the user to stderr. Its arguments may come from elsewhere.
func (p *program) say(format string, args ...any) {
	fmt.Fprintln(p.err, "sema: "+unprefixed(printable.Sprintf(format, args...)))
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sema",
		Short: "Limit how many commands run at a time, on one machine or on many",
		Long: `sema limits how many commands run at a time, on one machine or on many.

A cron job that must not overlap itself:
  sema run nightly -n 1 --no-wait -- ./backup.sh

At most four builds on this machine, whichever shell starts them:
  sema run builds -n 4 -- make

At most ten calls of an API from all machines, through a Redis that all reach:
  export SEMA_STORE=redis://redis.internal:6379
  sema run partner-api -n 10 -- ./sync.py

A semaphore has a name and a number of permits, its capacity. On one machine it needs
no server, no setup and no cleaning up after a crash. For many machines, name a store
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

Exit codes: 0 success · 1 no such semaphore · 64 wrong usage · 69 the store cannot be
reached · 74 the output could not be written · 75 no permit · 76 the lease was lost ·
77 not allowed · and those of 'sema run'.`,
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
			if c.Name() != "run" { // whose arguments are another command's
				c.Args = positional
			}
			root.AddCommand(c)
		}
	}
	root.SetIn(p.in)
	root.SetOut(p.out) // before cobra's command for shells is made, which keeps it
	root.SetErr(p.err)
	help := helpCommand()
	help.Args = positional
	root.SetHelpCommand(help)
	explainCompletion(root)
	root.SetFlagErrorFunc(p.flagError)
	return root
}

// storeURL is what was named.
func (p *program) storeURL() string {
	for _, url := range []string{p.store, os.Getenv("SEMA_STORE")} {
		if url != "" {
			return url
		}
	}
	return scope.Default
}

// patience is how long an engine may take over what nobody waits in line for.
const patience = 10 * time.Second

// with opens the scope for a command that a signal may end.
func (p *program) with(access engine.Access, do func(context.Context, scope.Scope) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.open(ctx, access, func(s scope.Scope) error { return do(ctx, s) })
}

// briefly is with, for commands that a healthy store completes at once.
func (p *program) briefly(access engine.Access, do func(context.Context, scope.Scope) error) error {
	return p.with(access, func(ctx context.Context, s scope.Scope) error {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		defer cancel()
		return do(ctx, s)
	})
}

// open does something with the scope. What matters is said by then: that the engine
// is not taken leave of changes nothing.
func (p *program) open(ctx context.Context, access engine.Access, do func(scope.Scope) error) error {
	opening, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	s, err := scope.Open(opening, p.storeURL(), access)
	if err != nil {
		return err
	}
	defer p.leave(ctx, s)
	return do(s)
}

// leave does not wait for an engine that does not answer: the process ends, and
// what it had there with it.
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
