// Package explain turns errors into what users of the command line read: the facts in
// one line, and a hint in another. The hints of package sema are for programmers; those
// of this package name commands and flags.
package explain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// Error returns the facts of an error and a hint, which may be empty. Both are empty if
// nothing is to be printed.
func Error(err error) (facts, hint string) {
	var coded *exit.Error
	switch {
	case exit.Silent(err):
		return "", ""
	case errors.As(err, &coded):
	case errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrTimeout), errors.Is(err, sema.ErrDraining), errors.Is(err, sema.ErrTooLarge):
		return rejection(err)
	case exit.Code(err) == exit.Unavailable:
		return unavailable(err)
	case errors.Is(err, fs.ErrNotExist):
		return missing(err)
	}
	return plain(err)
}

// Print writes the facts and the hint of an error in a line each, if there are any. They
// may contain text from elsewhere.
func Print(w io.Writer, err error) {
	facts, hint := Error(err)
	if facts != "" {
		fmt.Fprintln(w, "sema: "+printable.Line(facts))
	}
	if hint != "" {
		fmt.Fprintln(w, "hint: "+printable.Line(hint))
	}
}

// Text returns facts and hint in one line, where there is no room for two.
func Text(err error) string {
	facts, hint := Error(err)
	if hint == "" {
		return facts
	}
	return facts + " (hint: " + hint + ")"
}

// plain returns the text of the library, and its hint.
func plain(err error) (facts, hint string) { return WithoutPrefix(err.Error()), sema.Hint(err) }

// WithoutPrefix returns text without the name of the library, which every line of the
// program begins with.
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
		return fmt.Sprintf("%q has a capacity of %d, so that %d permits can never be granted", e.Name, e.Capacity, e.Weight),
			fmt.Sprintf("acquire fewer with --weight, or raise the capacity: sema set %s --capacity %d", name, e.Weight)
	case errors.Is(err, sema.ErrDraining):
		return fmt.Sprintf("%q is draining and grants no permits", e.Name), fmt.Sprintf("'sema resume %s' ends that", name)
	case errors.Is(err, sema.ErrQueueFull):
		return fmt.Sprintf("the queue of %q is full: %s", e.Name, numbers),
			fmt.Sprintf("try again later, or allow more waiters: sema set %s --max-waiters N", name)
	case undecided(e):
		return fmt.Sprintf("no permit of %q yet: %s", e.Name, e.Detail), later(e.After)
	case errors.Is(err, sema.ErrTimeout):
		return fmt.Sprintf("no permit of %q within %s: %s", e.Name, e.Detail, numbers), holders
	}
	return fmt.Sprintf("no permit of %q is free: %s", e.Name, numbers), holders
}

// undecided reports whether there is no permit for another reason than that all are
// held: the detail is that reason. Otherwise it is empty, or how long a wait lasted.
func undecided(e *sema.Error) bool {
	_, err := time.ParseDuration(e.Detail)
	return (errors.Is(e, sema.ErrTimeout) || errors.Is(e, sema.ErrFull)) && e.Detail != "" && err != nil
}

func later(after time.Duration) string {
	if after <= 0 {
		return "try again later"
	}
	return fmt.Sprintf("try again after %v", max(after.Round(time.Second), time.Second))
}

// unavailable explains a store that cannot be reached. Some stores end their text with
// a question, which is a hint.
func unavailable(err error) (facts, hint string) {
	facts = strings.TrimPrefix(WithoutPrefix(err.Error()), "store unavailable: ")
	facts = strings.Replace(facts, ": connect: ", ": ", 1) // the system call
	hint = "'sema doctor' examines the store"
	if before, question, found := strings.Cut(facts, "; is it running"); found && strings.HasSuffix(question, "?") {
		facts, hint = before, "is it running"+question+" "+hint
	}
	return facts, hint
}

// missing explains what does not exist: a semaphore, or a file.
func missing(err error) (facts, hint string) {
	var path *fs.PathError
	var e *sema.Error
	if errors.As(err, &path) || !errors.As(err, &e) {
		return plain(err)
	}
	return fmt.Sprintf("there is no semaphore %q", e.Name), "'sema ls' lists semaphores, 'sema run' creates one"
}
