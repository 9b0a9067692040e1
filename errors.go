package sema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What callers branch on, with errors.Is, at every scope. The errors returned are
// *[Error] values that wrap one of these with the facts; [Hint] returns the advice,
// and [Reason] a short word for metrics. A context that ended is not wrapped: its
// cause is returned as it is.
var (
	// ErrFull: a try found too few permits free.
	ErrFull error = &sentinel{text: "too few permits free", reason: "full", hint: "wait with Acquire, or shed the request"}
	// ErrQueueFull: as many callers wait as MaxWaiters allows. It is ErrFull too.
	ErrQueueFull error = &sentinel{text: "queue full", reason: "queue-full", hint: "shed the request, or raise MaxWaiters", is: ErrFull}
	// ErrTimeout: MaxWait passed. It is context.DeadlineExceeded too.
	ErrTimeout error = &sentinel{text: "waited too long", reason: "timeout", hint: "look for permits held too long, or raise MaxWait or the capacity", is: context.DeadlineExceeded}
	// ErrClosed: the semaphore was closed.
	ErrClosed error = &sentinel{text: "closed", reason: "closed", hint: "create a new one: a closed one stays closed"}
	// ErrDraining: the semaphore is draining and grants nothing.
	ErrDraining error = &sentinel{text: "draining", reason: "draining", hint: "use another one, or retry after it is resumed"}
	// ErrTooLarge: more was asked for than can ever be granted.
	ErrTooLarge error = &sentinel{text: "larger than capacity", reason: "too-large", hint: "split the request, or raise the capacity"}
	// ErrLost: the lease behind a permit is gone; another client may hold it.
	ErrLost error = &sentinel{text: "lease lost", reason: "lost", hint: "stop using the resource and acquire again"}
	// ErrUnavailable: the store behind a fleet semaphore does not reply.
	ErrUnavailable error = &sentinel{text: "store unavailable", reason: "unavailable", hint: "check that it runs and can be reached"}
	// ErrOverRelease: more was released than acquired.
	ErrOverRelease error = &sentinel{text: "more released than acquired", reason: "over-release", hint: "release each permit once, by the goroutine that acquired it"}
	// ErrInvalid: an argument is invalid: a negative weight, a nil context.
	ErrInvalid error = &sentinel{text: "invalid argument", reason: "invalid"}
)

// nilContext is the detail of ErrInvalid for a call without a context.
const nilContext = "nil context"

// A sentinel is an error that may be a special case of another.
type sentinel struct {
	text, reason, hint string
	is                 error
}

func (e *sentinel) Error() string        { return "sema: " + e.text }
func (e *sentinel) Is(target error) bool { return e.is != nil && errors.Is(e.is, target) }

// An Error is what failed, with the numbers of that moment. Err is the sentinel.
type Error struct {
	Op       string // what was tried: "acquire", "try", "drain", …
	Name     string // of the semaphore, if it has one
	Weight   int64  // permits asked for
	Capacity int64
	InUse    int64
	Waiters  int
	Detail   string        // more facts, if there are any
	Advice   string        // what [Hint] returns; "": the hint of the sentinel
	After    time.Duration // after which asking again makes sense; 0: unknown
	Err      error
}

// Error returns one line of facts: what failed, how much of how much, and why. What
// to do about it is in [Hint].
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("sema: ")
	if e.Name != "" {
		fmt.Fprintf(&b, "%q: ", e.Name)
	}
	b.WriteString(e.Op)
	if e.Weight != 0 {
		fmt.Fprintf(&b, " %d of %d permits", e.Weight, e.Capacity)
	}
	text := "failed"
	switch err := e.Err.(type) {
	case nil:
	case *sentinel:
		text = err.text
	default:
		text = err.Error()
	}
	b.WriteString(": " + text)
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if errors.Is(e.Err, ErrFull) || errors.Is(e.Err, ErrTimeout) {
		fmt.Fprintf(&b, " (%d in use, %d waiting)", e.InUse, e.Waiters)
	}
	if e.After > 0 {
		fmt.Fprintf(&b, "; try again after %v", max(e.After.Round(time.Millisecond), time.Millisecond))
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns what a person can do about an error, "" if nothing is known. It is the
// advice of the first error in the chain that has some: an [Error], a sentinel of
// this package, or one with a method Hint() string.
func Hint(err error) string {
	switch e := err.(type) {
	case interface{ Hint() string }:
		return e.Hint()
	case *Error:
		if e.Advice != "" {
			return e.Advice
		}
		if e.Detail == nilContext {
			return "pass context.Background() to wait without limit"
		}
	case *sentinel:
		return e.hint
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return Hint(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if hint := Hint(one); hint != "" {
				return hint
			}
		}
	}
	return ""
}

// Reason returns a short stable word for why an acquire failed, for the labels of
// metrics: "full", "queue-full", "timeout", "closed", "draining", "too-large", "lost",
// "unavailable", "over-release" or "invalid" for the sentinels of this package;
// "cancelled" and "deadline" for contexts that ended; what the method Reason() string
// of an error in the chain returns, such as "rate" or "breaker"; "other" for the rest,
// and "" for nil.
func Reason(err error) string {
	var (
		known    *sentinel
		reasoned interface{ Reason() string }
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &reasoned):
		return reasoned.Reason()
	case errors.As(err, &known):
		return known.reason
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return "other"
}

// sentinelOf is the error for a status that ends an acquire.
func sentinelOf(v status) error {
	switch v {
	case full:
		return ErrFull
	case queueFull:
		return ErrQueueFull
	case tooLarge:
		return ErrTooLarge
	case rejectedDraining:
		return ErrDraining
	case closed:
		return ErrClosed
	case timedOut:
		return ErrTimeout
	}
	panic(fmt.Sprintf("sema: status %d ends no acquire", v))
}
