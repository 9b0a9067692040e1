package sysv

import (
	"fmt"

	"github.com/sema-go/sema"
)

// A refusal says which call on which set failed, and why.
type refusal struct {
	name, verb string
	reason     *reason
}

func (r *refusal) Error() string { return fmt.Sprintf("sema: %q: %s: %v", r.name, r.verb, r.reason) }
func (r *refusal) Unwrap() error { return r.reason }

// A reason is a fact and what to do about it. is holds what errors.Is finds: a
// sentinel of package sema, the errno, or both.
type reason struct {
	text, hint string
	is         []error
}

func (r *reason) Error() string {
	if r.hint == "" {
		return r.text
	}
	return r.text + "; " + r.hint
}

func (r *reason) Unwrap() []error { return r.is }

// refuse is the error for a call on the set that the kernel answered with err.
func (s *Set) refuse(verb string, err error) error {
	return &refusal{s.label(), verb, s.reasonFor(err)}
}

func invalid(name, verb, text string) error {
	return &refusal{name, verb, &reason{text: text, is: []error{sema.ErrInvalid}}}
}

func (s *Set) noSuchSemaphore(verb string, num int) error {
	return &refusal{s.label(), verb, &reason{
		text: fmt.Sprintf("no semaphore %d in a set of %d: want 0 to %d", num, s.n, s.n-1),
		is:   []error{sema.ErrInvalid, errNoSuchSemaphore}}}
}

// outOfRange is for numbers that no semaphore can have.
func outOfRange(name, verb string, number int, sentinel error) error {
	return &refusal{name, verb, &reason{
		text: fmt.Sprintf("%d is beyond what a semaphore can have: want 0 to %d", number, MaxValue),
		is:   []error{sentinel, errOutOfRange}}}
}
