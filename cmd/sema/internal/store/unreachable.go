package store

import (
	"errors"
	"io/fs"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// An Unreachable is the error of a store that cannot be reached for any reason. It is
// [sema.ErrUnavailable].
type Unreachable struct{ Cause error }

// Error implements error.
func (u *Unreachable) Error() string { return u.Cause.Error() }

// Unwrap returns the cause and [sema.ErrUnavailable].
func (u *Unreachable) Unwrap() []error { return []error{u.Cause, sema.ErrUnavailable} }

// Unreached wraps err in [Unreachable]. It returns nil, denials, and errors with an exit code
// unchanged: a store that denies an operation was reached.
func Unreached(err error) error {
	var coded *exit.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &Unreachable{err}
}
