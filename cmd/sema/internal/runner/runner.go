// Package runner runs a command while it holds permits: it waits for them, starts
// the command in a process group of its own, passes signals on to that group and
// ends it when the permits are lost.
//
// It is what 'sema run' does. Programs that are written in Go use [sema.Do].
package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// Exit codes of who runs a command, besides the command's own. They are those of
// shells and of sysexits.h where there is one.
const (
	CodeLost          = 76 // the permits were lost while it ran
	CodeNotExecutable = 126
	CodeNotFound      = 127
	codeSignal        = 128 // and the number
)

// An Exit is an error that has an exit code of its own.
type Exit struct {
	Code int
	Err  error // for people; nil if there is nothing to say
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Options are what to run, and how.
type Options struct {
	Want      scope.Want
	Weight    int64
	Command   []string
	KillAfter time.Duration // it was told to end; 0: when others may be let in, or not at all
	Say       func(format string, args ...any)
}

// Run returns when the command has ended: with nil if that was well, or else with
// an [Exit]; or with why there was no permit.
func Run(ctx context.Context, s scope.Scope, o Options) error {
	cmd, err := prepare(o.Command)
	if err != nil {
		return err
	}
	w := &wrapper{Options: o, signals: make(chan os.Signal, 16)}
	w.catch(endings)
	defer signal.Stop(w.signals)
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

// catch has signals be passed on, but for those that were ignored when this
// program began, as nohup and shells want it: the command shall ignore them, too.
func (w *wrapper) catch(signals []os.Signal) {
	signals = slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(signals) > 0 {
		signal.Notify(w.signals, signals...)
	}
}

// prepare finds the command before anybody waits for a permit in vain.
func prepare(command []string) (*exec.Cmd, error) {
	cmd := exec.Command(command[0], command[1:]...)
	if cmd.Err != nil {
		return nil, notStarted(command[0], cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}

func notStarted(command string, err error) error {
	var failed *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &failed):
		err = failed.Err
	case errors.As(err, &path):
		err = path.Err
	}
	exit := &Exit{CodeNotExecutable, fmt.Errorf("cannot run %s: %w", command, err)}
	switch {
	case errors.Is(err, exec.ErrDot):
		exit.Err = fmt.Errorf("cannot run %s: it is in the current directory only; say ./%s", command, command)
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		exit.Code = CodeNotFound
		if strings.ContainsAny(command, " \t;|&") {
			exit.Err = fmt.Errorf("%w; there is no shell in between: write program and arguments apart, or sh -c '…'", exit.Err)
		}
	}
	return exit
}

// run starts the command and stays until it has ended.
func (w *wrapper) run(cmd *exec.Cmd, hold scope.Hold) error {
	cmd.Env = append(withoutOurs(os.Environ()), hold.Environment()...)
	if err := hold.Attach(cmd); err != nil {
		return err
	}
	w.catch(others) // before it can have told anybody that it is there
	child, err := start(cmd)
	if err != nil {
		return notStarted(w.Command[0], err)
	}
	return w.supervise(child, hold)
}

// withoutOurs is an environment without what a wrapper around this one has said.
func withoutOurs(environment []string) []string {
	return slices.DeleteFunc(environment, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"SEMA_NAME", "SEMA_LEASE", "SEMA_FENCE", "SEMA_FENCE_FLOOR"}, name)
	})
}

// releaseTime is how long an engine may take to hear of a release.
const releaseTime = 5 * time.Second

// release gives the permits back. If that cannot be said, they are free when the
// lease has run out; how the command has ended, while it held them, counts.
func (w *wrapper) release(hold scope.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := hold.Release(ctx); err != nil && !errors.Is(err, sema.ErrLost) {
		w.Say("the permit was not given back, and is free when its TTL has passed: %v", err)
	}
}
