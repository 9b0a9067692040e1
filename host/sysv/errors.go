package sysv

import (
	"fmt"

	"github.com/sema-go/sema"
)

// nilContext is the detail of ErrInvalid for a call with a nil context. It is the same
// text as in package sema, so that sema.Hint returns the advice.
const nilContext = "nil context"

// A reason is an error with a fact and its advice.
type reason struct {
	text, hint string
	is         []error // what errors.Is matches: a sentinel of package sema, the errno, or both
}

func (r *reason) Error() string { return r.text }

// Hint returns the advice, for [sema.Hint].
func (r *reason) Hint() string { return r.hint }

func (r *reason) Unwrap() []error { return r.is }

// failed returns the error of a call.
func failed(name, verb string, r *reason) error { return &sema.Error{Op: verb, Name: name, Err: r} }

// wrap returns the error for a call on the set for which the kernel returned err.
func (s *Set) wrap(verb string, err error) error { return failed(s.label(), verb, s.reasonFor(err)) }

func invalid(name, verb, text, hint string) error {
	return failed(name, verb, &reason{text: text, hint: hint, is: []error{sema.ErrInvalid}})
}

func (s *Set) noSuchSemaphore(verb string, num int) error {
	return failed(s.label(), verb, &reason{
		text: fmt.Sprintf("no semaphore %d in a set of %d", num, s.n), hint: fmt.Sprintf("use 0 to %d", s.n-1),
		is: []error{sema.ErrInvalid, errNoSuchSemaphore}})
}

// outOfRange returns the error for a number that no semaphore can have.
func outOfRange(name, verb string, number int, sentinel error) error {
	return failed(name, verb, &reason{
		text: fmt.Sprintf("%d is out of range", number), hint: fmt.Sprintf("use 0 to %d", MaxValue),
		is: []error{sentinel, errOutOfRange}})
}
