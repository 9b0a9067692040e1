// Package commandtest lets the tests of a command run it as users do: in its own process, from the
// test binary.
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

// variable is the environment variable that makes the test binary act as the program.
const variable = "SEMA_COMMANDTEST"

// timeout bounds one run of a command.
const timeout = time.Minute

// Main implements TestMain. In a process that was started by this package, it runs the program
// sema with the one command. Otherwise it runs the tests, and then the functions in ends.
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
	if err != nil && !began { // wrong flags or arguments
		err = &exit.Error{Code: exit.Usage, Err: err}
	}
	explain.Print(os.Stderr, err)
	return exit.Code(err)
}

// Command returns the program, not yet started.
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

// A Result is the output and exit code of a command.
type Result struct {
	Out, Err string
	Code     int
}

// Run runs the program until it ends.
func Run(t testing.TB, args ...string) Result {
	t.Helper()
	cmd := Command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}
