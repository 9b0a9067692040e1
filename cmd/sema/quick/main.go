// Command quick is the program that 'make install' and the releases install as sema. It runs
// 'sema run' for semaphores of this machine, and starts the complete program, sema-full, for
// everything else.
//
// The complete program contains a server, a dashboard and the drivers of five stores, and takes
// several times as long to start as flock(1). That matters for a command that wraps small jobs.
// This program imports none of them. It has no commands, help or messages of its own: package
// runner declares 'sema run' for both, and what this program does not understand it leaves to
// the complete one.
package main

import (
	"context"
	"os"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/store"
)

func main() {
	do := parse(os.Args[1:])
	if do == nil {
		do = complete
	}
	err := do()
	explain.Print(os.Stderr, err)
	os.Exit(exit.Code(err))
}

// parse returns what a command line does if it is a valid 'sema run' for host:, and nil otherwise.
func parse(args []string) (do func() error) {
	if len(args) == 0 || args[0] != "run" {
		return nil
	}
	var hosts scope.Scope
	command := runner.Command(runner.Program{
		Open:     func(_ context.Context, do func(scope.Scope) error) error { return do(hosts) },
		Messages: os.Stderr,
	})
	flags := command.Flags()
	flags.Usage = func() {} // the complete program prints it
	where := flags.String("store", "", "")
	if flags.Parse(args[1:]) != nil || command.Args(command, flags.Args()) != nil {
		return nil
	}
	u, err := store.FromFlag(*where)
	if err != nil || !u.IsHost() {
		return nil
	}
	if hosts, err = scope.Host(u); err != nil {
		return nil
	}
	return func() error { return command.RunE(command, flags.Args()) }
}
