package host

import (
	"errors"

	"github.com/sema-go/sema"
)

// What callers branch on, besides the errors of package sema.
var (
	// ErrDeleted: the file of a semaphore in use was deleted or replaced.
	ErrDeleted error = &sentinel{text: "file deleted or replaced", reason: "deleted", hint: "close the semaphore and open it again"}
	// ErrDamaged: the file of a semaphore in use was truncated or overwritten.
	// Permits that are held stay valid and can be released.
	ErrDamaged error = &sentinel{text: "file truncated or overwritten", reason: "damaged", hint: "close the semaphore in all processes and open it again"}
)

// A sentinel is an error with advice and a word for metrics.
type sentinel struct{ text, reason, hint string }

func (e *sentinel) Error() string { return e.text }

// Hint implements what [sema.Hint] looks for.
func (e *sentinel) Hint() string { return e.hint }

// Reason implements what [sema.Reason] looks for.
func (e *sentinel) Reason() string { return e.reason }

// nilContext is the detail of ErrInvalid for a call without a context, the same
// as in package sema, whose Hint has the advice.
const nilContext = "nil context"

// invalid returns ErrInvalid with a fact and the advice for it. The caller adds the
// operation and the name.
func invalid(detail, advice string) *sema.Error {
	return &sema.Error{Err: sema.ErrInvalid, Detail: detail, Advice: advice}
}

// fault returns an error about n permits with the numbers of this moment. They come
// from shared memory: the kernel is not asked. The caller has a reference to the
// file, unless the error is ErrClosed.
func (s *Semaphore) fault(op string, n int64, err error, detail string) *sema.Error {
	st := s.Stats()
	return &sema.Error{Op: op, Name: s.name, Weight: n, Err: err, Detail: detail,
		Capacity: st.Capacity, InUse: st.InUse, Waiters: st.Waiters}
}

// wrap adds the operation, the name and the path to an error that has none.
func (f *file) wrap(op string, err error) error {
	if facts := (*sema.Error)(nil); err == nil || errors.As(err, &facts) {
		return err
	}
	return &sema.Error{Op: op, Name: f.name, Err: err, Detail: f.path}
}

func openError(name string, err error, detail, advice string) error {
	return &sema.Error{Op: "open", Name: name, Err: err, Detail: detail, Advice: advice}
}
