// Package explain converts errors for users of the command line: the facts on one line, and a
// hint on another. The hints of package sema are for programmers; those of this package name
// commands and flags.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/fleet"
)

// Error returns the facts of an error and a hint, which may be empty. Both are empty if nothing
// should be printed.
func Error(err error) (facts, hint string) {
	var coded *exit.Error
	switch {
	case exit.IsPrinted(err):
		return "", ""
	case errors.As(err, &coded):
	case errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrTimeout), errors.Is(err, sema.ErrDraining), errors.Is(err, sema.ErrTooLarge):
		return rejection(err)
	case exit.Code(err) == exit.Unavailable:
		return unavailable(err)
	case errors.Is(err, fs.ErrNotExist):
		return missing(err)
	case errors.Is(err, fs.ErrPermission):
		return denied(err)
	}
	return plain(err)
}

// Print writes the facts and the hint of an error, each on its own line if it is not empty.
// They may contain untrusted text.
func Print(w io.Writer, err error) {
	facts, hint := Error(err)
	if facts != "" {
		fmt.Fprintln(w, "sema: "+printable.Line(facts))
	}
	if hint != "" {
		fmt.Fprintln(w, "hint: "+printable.Line(hint))
	}
}

// Printf writes a message. Its arguments may contain untrusted text.
func Printf(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, "sema: "+WithoutPrefix(printable.Sprintf(format, args...)))
}

// Warn writes a warning, and its hint if it is not empty.
func Warn(w io.Writer, facts, hint string) {
	Printf(w, "warning: %s", facts)
	if hint != "" {
		Hint(w, "%s", hint)
	}
}

// Hint writes advice, on its own line.
func Hint(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, "hint: "+printable.Sprintf(format, args...))
}

// Text returns facts and hint on one line.
func Text(err error) string {
	facts, hint := Error(err)
	if hint == "" {
		return facts
	}
	return facts + " (hint: " + hint + ")"
}

// plain returns the library's text and hint.
func plain(err error) (facts, hint string) { return WithoutPrefix(err.Error()), sema.Hint(err) }

// WithoutPrefix removes the library's name from a text: every line of the program already
// starts with it.
func WithoutPrefix(text string) string { return strings.ReplaceAll(text, "sema: ", "") }

// rejection explains why no permit was granted.
func rejection(err error) (facts, hint string) {
	var e *sema.Error
	if !errors.As(err, &e) {
		return plain(err)
	}
	numbers := fmt.Sprintf("%d of %d in use", e.InUse, e.Capacity)
	if e.Waiters > 0 {
		numbers += fmt.Sprintf(", %d waiting", e.Waiters)
	}
	name := printable.Arg(e.Name)
	holders := fmt.Sprintf("'sema show %s' lists the holders", name)
	switch {
	case errors.Is(err, sema.ErrTooLarge):
		return fmt.Sprintf("%q has a capacity of %d, so %d permits can never be granted", e.Name, e.Capacity, e.Weight),
			fmt.Sprintf("acquire fewer with --weight, or raise the capacity: sema set %s --capacity %d", name, e.Weight)
	case errors.Is(err, sema.ErrDraining):
		return fmt.Sprintf("%q is draining and grants no permits", e.Name), fmt.Sprintf("'sema resume %s' ends the draining", name)
	case errors.Is(err, sema.ErrQueueFull):
		return fmt.Sprintf("the queue of %q is full: %s", e.Name, numbers),
			fmt.Sprintf("retry later, or allow more waiters: sema set %s --max-waiters N", name)
	case undecided(e):
		return fmt.Sprintf("no permit of %q yet: %s", e.Name, e.Detail), later(e.After)
	case errors.Is(err, sema.ErrTimeout):
		return fmt.Sprintf("no permit of %q within %s: %s", e.Name, e.Detail, numbers), holders
	}
	return fmt.Sprintf("no permit of %q is free: %s", e.Name, numbers), holders
}

// undecided reports whether the store could not decide if a permit is free. The detail of such
// an error is the reason. If all permits are held, the detail is empty or the duration of the
// wait.
func undecided(e *sema.Error) bool {
	_, err := time.ParseDuration(e.Detail)
	return (errors.Is(e, sema.ErrTimeout) || errors.Is(e, sema.ErrFull)) && e.Detail != "" && err != nil
}

func later(after time.Duration) string {
	if after <= 0 {
		return "retry later"
	}
	return fmt.Sprintf("retry after %v", max(after.Round(time.Second), time.Second))
}

// unavailable explains a store that cannot be reached. The texts of some stores end with a
// hint.
func unavailable(err error) (facts, hint string) {
	facts = strings.TrimPrefix(WithoutPrefix(err.Error()), "store unavailable: ")
	facts = strings.Replace(facts, ": connect: ", ": ", 1) // the system call
	var e *sema.Error
	if errors.As(err, &e) && (e.Op == "acquire" || e.Op == "try") {
		span, cause, found := strings.Cut(e.Detail, ": ")
		if span, waited := strings.CutPrefix(span, "for "); waited && found {
			facts = fmt.Sprintf("no permit of %q within %s: %s", e.Name, span, withoutNames(cause, e.Name))
		}
	}
	hint = "'sema doctor' examines the store"
	advice := ""
	if fleet.FaultOf(err) == fleet.FaultConnection {
		advice = sema.Hint(err)
	}
	if before, after, found := strings.Cut(facts, " (hint: "); found && strings.HasSuffix(after, ")") {
		facts, advice = before, strings.TrimSuffix(after, ")")
	}
	if advice != "" {
		hint = advice + "; " + hint
	}
	return inTime(facts), hint
}

// inTime replaces the text of an expired context, which stores append.
func inTime(facts string) string {
	before, expired := strings.CutSuffix(facts, ": "+context.DeadlineExceeded.Error())
	if expired && !strings.Contains(before, "reply") {
		return before + ": no reply in time"
	}
	return before
}

// Cause returns why the store of a semaphore fails, for a text that has named both already.
func Cause(err error, semaphore string) string {
	facts, _ := unavailable(err)
	if cause := withoutNames(facts, semaphore); cause != "" {
		return cause
	}
	return "it does not reply"
}

// withoutNames removes the semaphore and the kind of the error, which stores put before a cause.
func withoutNames(cause, semaphore string) string {
	cause = strings.TrimPrefix(WithoutPrefix(cause), fmt.Sprintf("semaphore %q: ", semaphore))
	return strings.TrimPrefix(strings.TrimPrefix(cause, "store unavailable"), ": ")
}

// denied explains what the system does not allow. Waiting, the advice for a store that cannot be
// reached, does not help.
func denied(err error) (facts, hint string) {
	facts, hint = plain(err)
	var path *fs.PathError
	if errors.As(err, &path) {
		hint = fmt.Sprintf("check the owner and the permissions of %s", filepath.Dir(path.Path))
	}
	return facts, hint
}

// missing explains a semaphore or a file that does not exist.
func missing(err error) (facts, hint string) {
	var path *fs.PathError
	var e *sema.Error
	if errors.As(err, &path) || !errors.As(err, &e) {
		return plain(err)
	}
	return fmt.Sprintf("no semaphore %q", e.Name), "'sema ls' lists semaphores, 'sema run' creates one"
}
