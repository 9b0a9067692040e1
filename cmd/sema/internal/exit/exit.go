// Package exit declares the exit codes of all sema commands and maps errors to them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sema-go/sema"
)

// The exit codes of sema, taken from sysexits.h and shells where possible.
const (
	OK            = 0
	Failed        = 1
	Usage         = 64
	Unavailable   = 69
	Output        = 74
	NoPermit      = 75
	Lost          = 76
	Denied        = 77
	NotExecutable = 126
	NotFound      = 127
	Signal        = 128 // plus the number of the signal
	Interrupted   = Signal + 2
)

// A Meaning describes an exit code in a few words, for help texts and documentation.
type Meaning struct {
	Code int
	Text string
}

// Meanings lists all exit codes in order. Signal stands for all codes above it.
var Meanings = []Meaning{
	{OK, "success"},
	{Failed, "no such semaphore, or the command failed"},
	{Usage, "wrong usage"},
	{Unavailable, "the store cannot be reached"},
	{Output, "the output could not be written"},
	{NoPermit, "no permit"},
	{Lost, "the lease was lost"},
	{Denied, "not allowed"},
	{NotExecutable, "the command cannot be run"},
	{NotFound, "the command was not found"},
	{Signal, "a signal ended the command, or sema"},
}

// Name returns the code as text: "128+n" for signals.
func (m Meaning) Name() string {
	if m.Code == Signal {
		return "128+n"
	}
	return fmt.Sprint(m.Code)
}

// Describe returns a line for each of the given codes, or for all codes.
func Describe(codes ...int) string {
	var lines []string
	for _, m := range Meanings {
		wanted := len(codes) == 0
		for _, code := range codes {
			wanted = wanted || code == m.Code
		}
		if wanted {
			lines = append(lines, fmt.Sprintf("  %5s  %s", m.Name(), m.Text))
		}
	}
	return strings.Join(lines, "\n")
}

// An Error ends the program with an exit code.
type Error struct {
	Code    int
	Err     error  // nil: nothing is printed
	Advice  string // what the user can do; "": the hint of Err
	Printed bool   // the command has already printed Err
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the advice. [sema.Hint] calls it.
func (e *Error) Hint() string {
	if e.Advice == "" {
		return sema.Hint(e.Err)
	}
	return e.Advice
}

// With sets the advice, and returns e.
func (e *Error) With(format string, args ...any) *Error {
	e.Advice = fmt.Sprintf(format, args...)
	return e
}

// Errorf returns an error with an exit code.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Misuse returns the error of a wrong command line or configuration.
func Misuse(format string, args ...any) *Error { return Errorf(Usage, format, args...) }

// Code returns the exit code for an error.
func Code(err error) int {
	var coded *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrTimeout), errors.Is(err, sema.ErrDraining):
		return NoPermit
	case errors.Is(err, sema.ErrTooLarge):
		return Usage
	case errors.Is(err, fs.ErrPermission):
		return Denied
	case errors.Is(err, sema.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return Usage
	case errors.Is(err, sema.ErrLost):
		return Lost
	case errors.Is(err, sema.ErrUnavailable):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Failed
}

// IsPrinted reports whether nothing is left to print for an error: the command has printed it,
// or a signal ended the program.
func IsPrinted(err error) bool {
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Printed || coded.Err == nil
	}
	return err == nil || Code(err) == Interrupted
}
