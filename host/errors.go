package host

import (
	"errors"

	"github.com/sema-go/sema"
)

// Errors to branch on, besides those of package sema.
var (
	// ErrDeleted is returned when the file of a semaphore in use was deleted or
	// replaced.
	ErrDeleted error = &sentinel{text: "file deleted or replaced", reason: "deleted", hint: "close the semaphore and open it again"}
	// ErrDamaged is returned when the file of a semaphore in use was truncated or
	// overwritten. Held permits stay valid and can be released.
	ErrDamaged error = &sentinel{text: "file truncated or overwritten", reason: "damaged", hint: "close the semaphore in all processes and open it again"}
)

// A sentinel is an error with advice and a short reason for metrics.
type sentinel struct{ text, reason, hint string }

func (e *sentinel) Error() string { return e.text }

// Hint returns the advice, for [sema.Hint].
func (e *sentinel) Hint() string { return e.hint }

// Reason returns the reason, for [sema.Reason].
func (e *sentinel) Reason() string { return e.reason }

// nilContext is the detail of ErrInvalid for a call with a nil context. It is the same
// text as in package sema, so that sema.Hint returns the advice.
const nilContext = "nil context"

// invalid returns ErrInvalid with a detail and its advice. The caller adds the
// operation and the name.
func invalid(detail, advice string) *sema.Error {
	return &sema.Error{Err: sema.ErrInvalid, Detail: detail, Advice: advice}
}

// newError returns an error about n permits with the current numbers. They come from
// shared memory, without system calls. The caller has a reference to the file, unless
// the error is ErrClosed.
func (s *Semaphore) newError(op string, n int64, err error, detail string) *sema.Error {
	st := s.Stats()
	return &sema.Error{Op: op, Name: s.name, Weight: n, Err: err, Detail: detail,
		Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
}

// wrap adds the operation, the name and the path to err, unless err has them already.
func (f *file) wrap(op string, err error) error {
	if facts := (*sema.Error)(nil); err == nil || errors.As(err, &facts) {
		return err
	}
	return &sema.Error{Op: op, Name: f.name, Err: err, Detail: f.path}
}

func openError(name string, err error, detail, advice string) error {
	return &sema.Error{Op: "open", Name: name, Err: err, Detail: detail, Advice: advice}
}
