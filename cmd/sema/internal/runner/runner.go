// Package runner runs a command while holding permits. It waits for the permits, starts the
// command in its own process group, passes signals on to that group, and ends the group when
// the permits are lost.
//
// It implements 'sema run'. Go programs use [sema.Do].
package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/devices"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// Options configures a run.
type Options struct {
	Want      scope.Want
	Weight    int64
	Devices   *devices.Mask // restricts the command to the devices with the numbers of its permits; nil: does not
	Command   []string
	KillAfter time.Duration // from the first signal that ends the command to SIGKILL; 0: SIGKILL only if the lease is lost, before another holder is admitted
	Printf    func(format string, args ...any)
}

// Run runs the command and returns when it has ended: nil if its exit code was 0, and otherwise
// an [exit.Error] with its code. If no permit was granted, Run returns the reason.
func Run(ctx context.Context, s scope.Scope, o Options) error {
	cmd, err := prepare(o.Command)
	if err != nil {
		return err
	}
	w := &wrapper{Options: o, signals: make(chan os.Signal, 16)}
	w.catch(endings)
	defer signal.Stop(w.signals)
	if err := w.checkNumbers(ctx, s); err != nil {
		return err
	}
	semaphore, err := s.Semaphore(ctx, o.Want)
	if err != nil {
		return err
	}
	hold, err := w.acquire(ctx, semaphore)
	if err != nil {
		return err
	}
	defer w.release(hold)
	return w.run(cmd, hold)
}

// A wrapper is the process around a command.
type wrapper struct {
	Options
	signals chan os.Signal
}

// catch starts to receive signals for the command, except those that were ignored when this
// program started, as with nohup: the command ignores them, too.
func (w *wrapper) catch(signals []os.Signal) {
	signals = slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(signals) > 0 {
		signal.Notify(w.signals, signals...)
	}
}

// prepare finds the command before the wait, so that a missing command fails at once.
func prepare(command []string) (*exec.Cmd, error) {
	cmd := exec.Command(command[0], command[1:]...)
	if cmd.Err != nil {
		return nil, NotStarted(command[0], cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}

// NotStarted returns the error of a command that cannot be started, with its exit code.
func NotStarted(command string, err error) error {
	var search *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &search):
		err = search.Err
	case errors.As(err, &path):
		err = path.Err
	}
	failed := exit.Errorf(exit.NotExecutable, "cannot run %s: %w", command, err)
	switch {
	case errors.Is(err, exec.ErrDot):
		failed = exit.Errorf(exit.NotExecutable, "cannot run %s: it is in the current directory only", command).With("write ./%s", command)
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		failed.Code = exit.NotFound
		if strings.ContainsAny(command, " \t;|&") {
			failed = failed.With("there is no shell in between: pass program and arguments separately, or use sh -c '…'")
		}
	}
	return failed
}

// run starts the command and returns when it has ended.
func (w *wrapper) run(cmd *exec.Cmd, hold scope.Hold) error {
	numbers, err := w.numbers(hold)
	if err != nil {
		return err
	}
	cmd.Env = slices.Concat(withoutSemaVariables(os.Environ()), hold.Environment(), numbers)
	if err := hold.Attach(cmd); err != nil {
		return err
	}
	w.catch(others) // before the command starts
	child, err := start(cmd)
	if err != nil {
		return NotStarted(w.Command[0], err)
	}
	return w.supervise(child, hold)
}

// withoutSemaVariables returns an environment without the variables of an outer wrapper.
func withoutSemaVariables(environment []string) []string {
	return slices.DeleteFunc(environment, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"SEMA_NAME", "SEMA_LEASE", "SEMA_FENCE", "SEMA_FENCE_FLOOR", "SEMA_SLOTS"}, name)
	})
}

// releaseTimeout bounds the release of a permit.
const releaseTimeout = 5 * time.Second

// release releases the permits. If the store cannot be reached, they are free when the lease
// expires. The exit code is still that of the command, which held them until its end.
func (w *wrapper) release(hold scope.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := hold.Release(ctx); err != nil && !errors.Is(err, sema.ErrLost) {
		w.Printf("the permit was not released, and is free after its TTL: %v", err)
	}
}
