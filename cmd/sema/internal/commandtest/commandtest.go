// Package commandtest lets tests of one command run it as people do: in a process
// of its own, by the test's own binary.
package commandtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	_ "github.com/sema-go/sema/x/stores" // all stores
)

// variable is of the environment, and says that this is not the test but the
// program.
const variable = "SEMA_COMMANDTEST"

// timeout bounds one call of a command.
const timeout = time.Minute

// Main is for TestMain: in a process that was started by this package it is the
// program sema, which has the one command; else it runs the tests, and what is to
// be ended after them.
func Main(m *testing.M, command func(func() (store.URL, error)) *cobra.Command, ends ...func() error) {
	if os.Getenv(variable) != "" {
		os.Exit(program(command))
	}
	code := m.Run()
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func program(command func(func() (store.URL, error)) *cobra.Command) int {
	root := &cobra.Command{Use: "sema", SilenceErrors: true, SilenceUsage: true}
	flag := root.PersistentFlags().String("store", "", "URL of the store")
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.AddCommand(command(func() (store.URL, error) { return store.FromFlag(*flag) }))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := root.ExecuteContext(ctx)
	if err != nil && !began { // of flags and arguments
		err = &exit.Error{Code: exit.Usage, Err: err}
	}
	explain.Print(os.Stderr, err)
	return exit.Code(err)
}

// Command is the program, still to be started.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), variable+"=1", "SEMA_STORE=")
	return cmd
}

// A Result is what a command has said, and how it ended.
type Result struct {
	Out, Err string
	Code     int
}

// Run runs the program to its end.
func Run(t testing.TB, args ...string) Result {
	t.Helper()
	cmd := Command(t, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return Result{out.String(), said.String(), cmd.ProcessState.ExitCode()}
}
