package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
)

// Exit codes, of sysexits.h where there is one for it. The others are in package
// runner.
const (
	codeFailed      = 1
	codeUsage       = 64
	codeUnavailable = 69
	codeOutput      = 74
	codeNotObtained = 75
	codeNotAllowed  = 77
	codeInterrupted = 130
)

// A usageError is what was written wrongly.
type usageError struct{ error }

func (u *usageError) Unwrap() error { return u.error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

var errPatience = fmt.Errorf("%w: no answer within %v", sema.ErrUnavailable, patience)

// status is the exit code of an error, and what a person is told.
func status(err error) (code int, text string) {
	var (
		exit  *runner.Exit
		wrong *usageError
		coded *engine.Error
	)
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &coded) && coded.Said:
		return coded.Code, ""
	case errors.As(err, &coded):
		return coded.Code, plain(err)
	case errors.As(err, &exit):
		if exit.Err == nil {
			return exit.Code, ""
		}
		return exit.Code, plain(exit.Err)
	case errors.As(err, &wrong):
		return codeUsage, plain(err)
	case errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrTimeout), errors.Is(err, sema.ErrDraining):
		return codeNotObtained, refusal(err)
	case errors.Is(err, sema.ErrTooLarge):
		return codeUsage, refusal(err)
	case errors.Is(err, fs.ErrPermission):
		return codeNotAllowed, plain(err)
	case errors.Is(err, sema.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return codeUsage, plain(err)
	case errors.Is(err, sema.ErrLost):
		return runner.CodeLost, plain(err)
	case errors.Is(err, sema.ErrUnavailable):
		return codeUnavailable, unavailable(err)
	case errors.Is(err, fs.ErrNotExist):
		return codeFailed, missing(err)
	case errors.Is(err, context.Canceled):
		return codeInterrupted, ""
	}
	return codeFailed, plain(err)
}

// plain returns the text without the name of the library, and the hint.
func plain(err error) string {
	text := unprefixed(err.Error())
	if hint := sema.Hint(err); hint != "" {
		text += "; " + hint
	}
	return text
}

// unprefixed is without the name of the library, which each line begins with.
func unprefixed(text string) string { return strings.ReplaceAll(text, "sema: ", "") }

// refusal is why there is no permit, with the numbers and the next step.
func refusal(err error) string {
	var e *sema.Error
	if !errors.As(err, &e) {
		return plain(err)
	}
	numbers := fmt.Sprintf("%d of %d are in use", e.InUse, e.Capacity)
	if e.Waiters > 0 {
		numbers += fmt.Sprintf(", %d wait", e.Waiters)
	}
	switch {
	case errors.Is(err, sema.ErrTooLarge):
		return fmt.Sprintf("%q has a capacity of %d, so %d permits can never be had; ask for less (--weight), or 'sema set %s --capacity %d'",
			e.Name, e.Capacity, e.Weight, e.Name, e.Weight)
	case errors.Is(err, sema.ErrDraining):
		return fmt.Sprintf("%q is draining and lets nobody in until 'sema resume %s'", e.Name, e.Name)
	case errors.Is(err, sema.ErrQueueFull):
		return fmt.Sprintf("the line for %q is full (%s); try later, or 'sema set %s --max-waiters N'", e.Name, numbers, e.Name)
	case undecided(e):
		return fmt.Sprintf("no permit of %q yet: %s%s", e.Name, e.Detail, later(e.After))
	case errors.Is(err, sema.ErrTimeout):
		return fmt.Sprintf("no permit of %q within %s: %s; 'sema show %s' says by whom", e.Name, e.Detail, numbers, e.Name)
	}
	return fmt.Sprintf("no permit of %q is free: %s; 'sema show %s' says by whom", e.Name, numbers, e.Name)
}

// undecided reports whether there is no permit for another reason than that all are
// held: the detail is that reason. Otherwise it is empty, or how long a wait lasted.
func undecided(e *sema.Error) bool {
	_, err := time.ParseDuration(e.Detail)
	return (errors.Is(e, sema.ErrTimeout) || errors.Is(e, sema.ErrFull)) && e.Detail != "" && err != nil
}

func later(after time.Duration) string {
	if after <= 0 {
		return ""
	}
	return fmt.Sprintf("; try again after %v", max(after.Round(time.Second), time.Second))
}

// unavailable adds where to look.
func unavailable(err error) string {
	text := strings.TrimPrefix(unprefixed(err.Error()), "store unavailable: ")
	text = strings.Replace(text, ": connect: ", ": ", 1) // the system call
	if running, ok := strings.CutSuffix(text, "; is it running?"); ok {
		return running + " — is it running? try 'sema doctor'"
	}
	return text + " — try 'sema doctor'"
}

// missing is about a semaphore, unless it is about a file.
func missing(err error) string {
	var path *fs.PathError
	var e *sema.Error
	if errors.As(err, &path) || !errors.As(err, &e) {
		return plain(err)
	}
	return fmt.Sprintf("there is no semaphore %q; 'sema ls' lists those there are, 'sema run' makes one", e.Name)
}
