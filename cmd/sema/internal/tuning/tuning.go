// Package tuning implements the command that finds how many runs of a command should be allowed at
// a time, with package tune.
package tuning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/tune"
)

// settings holds the flags.
type settings struct {
	config  tune.Config
	percent float64
	output  string
}

// Command returns the command "sema tune".
func Command() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "tune [flags] -- COMMAND [ARGUMENT...]",
		Short: "Find how many runs of a command to allow at a time",
		Long: `Find how many runs of a command to allow at a time, by running it.

It runs the command once at a time, then 2, 4, 8 … at a time, until no more runs
complete per second. It then proposes the least number that yields almost all of the
throughput, plus 20 %. More at a time only makes each run longer.

The command runs many times: use one that does no harm, such as a typical query, and
a dependency that serves nothing else meanwhile. Its output is discarded. A run that
exits with another code than 0 has failed, and so has one that has not ended ten
times --each after the measurement: it gets SIGTERM.

Exit codes: 0, 1 no number can be proposed, 126 or 127 the command cannot be run, 130
after Ctrl-C.`,
		Example: `  sema tune -- psql -c 'select count(*) from orders'
  sema tune --max-p99 200ms --each 10s -- curl -sf http://localhost:8080/report
  sema tune --only 1,2,4,8 -o json -- make -C module`,
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 0 || len(args) == 0 {
				return exit.Misuse("want a command after --").With("write 'sema tune -- COMMAND'")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if s.output != "text" && s.output != "json" {
				return exit.Misuse("-o %s: want text or json", s.output)
			}
			s.config.MaxFailed = s.percent / 100
			return run(c, s, args)
		},
	}
	f := c.Flags()
	f.Int64Var(&s.config.Min, "min", 1, "begin with `N` at a time")
	f.Int64Var(&s.config.Max, "max", 64, "run at most `N` at a time")
	f.Int64SliceVar(&s.config.Only, "only", nil, "measure exactly these `NUMBERS`, such as 1,2,4,8 (default: those that are needed)")
	f.Lookup("only").DefValue = "" // --help would print an empty list as a default
	flags.Duration(f, &s.config.Each, "each", 5*time.Second, "measure each number for `DURATION`")
	flags.Duration(f, &s.config.MaxP99, "max-p99", 0, "propose no number whose p99 is longer than `DURATION` (default: any)")
	f.Float64Var(&s.percent, "max-failed", 1, "propose no number with which more than `PERCENT` of the runs fail")
	f.StringVarP(&s.output, "output", "o", "text", "output `FORMAT`: text or json")
	return c
}

// run measures the command, and prints what was measured also after Ctrl-C.
func run(c *cobra.Command, s settings, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return runner.NotStarted(command[0], err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	s.config.Work = func(ctx context.Context) error { return once(ctx, command) }
	s.config.Report = func(step tune.Step) {
		fmt.Fprintf(c.ErrOrStderr(), "%s\n", summary(step))
	}
	fmt.Fprintf(c.ErrOrStderr(), "each number is measured for %v or more …\n", s.config.Each)
	r, err := tune.Run(ctx, s.config)
	if err != nil && ctx.Err() == nil {
		return exit.Misuse("%s", strings.TrimPrefix(err.Error(), "tune: "))
	}
	if err := (report{r, ctx.Err() != nil}).print(c.OutOrStdout(), s.output); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return &exit.Error{Code: exit.Interrupted}
	case r.Proposed == 0:
		return &exit.Error{Code: exit.Failed, Err: errors.New("no number can be proposed"), Printed: true}
	}
	return nil
}

// once runs the command once. When ctx ends, it gets a signal to end, and a moment later another
// that it cannot ignore.
func once(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error {
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // Windows has no such signal
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = 2 * time.Second
	var errs tail
	cmd.Stderr = &errs
	err := cmd.Run()
	if err != nil && len(errs) > 0 {
		lines := strings.Split(strings.TrimSpace(string(errs)), "\n")
		return fmt.Errorf("%w: %s", err, printable.Line(lines[len(lines)-1]))
	}
	return err
}

// A tail keeps the last bytes that were written to it.
type tail []byte

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	const most = 1024
	*t = append(*t, p...)
	if over := len(*t) - most; over > 0 {
		*t = bytes.Clone((*t)[over:])
	}
	return len(p), nil
}
