package sema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinel errors of every scope, for use with errors.Is. Methods return *[Error]
// values that wrap one of them with the facts. [Hint] returns the advice, and
// [Reason] a short word for metrics. An acquire whose context ended returns the
// context's cause without wrapping.
var (
	// ErrFull: too few permits are free for a call that does not wait.
	ErrFull error = &sentinel{text: "too few permits free", reason: "full", hint: "wait with Acquire, or shed the request"}
	// ErrQueueFull: as many callers wait as MaxWaiters allows. It matches ErrFull too.
	ErrQueueFull error = &sentinel{text: "queue full", reason: "queue-full", hint: "shed the request, or raise MaxWaiters", is: ErrFull}
	// ErrTimeout: MaxWait passed. It matches context.DeadlineExceeded too.
	ErrTimeout error = &sentinel{text: "waited too long", reason: "timeout", hint: "look for permits held too long, or raise MaxWait or the capacity", is: context.DeadlineExceeded}
	// ErrClosed: the semaphore was closed.
	ErrClosed error = &sentinel{text: "closed", reason: "closed", hint: "create a new one: a closed one stays closed"}
	// ErrDraining: the semaphore is draining and grants nothing.
	ErrDraining error = &sentinel{text: "draining", reason: "draining", hint: "use another one, or retry after it is resumed"}
	// ErrTooLarge: the request exceeds the capacity and can never be granted.
	ErrTooLarge error = &sentinel{text: "larger than capacity", reason: "too-large", hint: "split the request, or raise the capacity"}
	// ErrLost: the lease behind a permit is lost; another client may hold it.
	ErrLost error = &sentinel{text: "lease lost", reason: "lost", hint: "stop using the resource and acquire again"}
	// ErrUnavailable: the store behind a fleet semaphore does not reply.
	ErrUnavailable error = &sentinel{text: "store unavailable", reason: "unavailable", hint: "check that it runs and can be reached"}
	// ErrOverRelease: more was released than acquired.
	ErrOverRelease error = &sentinel{text: "more released than acquired", reason: "over-release", hint: "release each permit once, by the goroutine that acquired it"}
	// ErrInvalid: an argument is invalid, such as a negative weight or a nil context.
	ErrInvalid error = &sentinel{text: "invalid argument", reason: "invalid"}
)

// nilContext is the Detail of an ErrInvalid for a nil context.
const nilContext = "nil context"

// A sentinel is an error that may match another one in addition to itself.
type sentinel struct {
	text, reason, hint string
	is                 error
}

func (e *sentinel) Error() string        { return "sema: " + e.text }
func (e *sentinel) Is(target error) bool { return e.is != nil && errors.Is(e.is, target) }

// An Error describes a failed operation, with the figures at that moment. It
// wraps Err.
type Error struct {
	Op       string        // the operation: "acquire", "try", "drain", …
	Name     string        // name of the semaphore; "": no name
	Weight   int64         // permits requested
	Capacity int64         // permits of the semaphore
	InUse    int64         // permits held
	Waiters  int           // queued callers
	Detail   string        // more facts; "": none
	Advice   string        // returned by [Hint]; "": the hint of the sentinel
	After    time.Duration // how long to wait before a retry makes sense; 0: unknown
	Err      error         // the sentinel, or the cause of a context that ended
}

// Error returns one line of facts: what failed, how much of the capacity was
// requested, and why it failed. [Hint] returns the advice.
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

// Hint returns advice for a person on how to handle err, or "" if there is none.
// It is the advice of the first error in the chain that has any: an [Error], a
// sentinel of this package, or an error with a method Hint() string.
func Hint(err error) string {
	switch e := err.(type) {
	case interface{ Hint() string }:
		return e.Hint()
	case *Error:
		if e.Advice != "" {
			return e.Advice
		}
		if advice := e.advice(); advice != "" {
			return advice
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

// advice returns advice that depends on the facts of the error, or "".
func (e *Error) advice() string {
	switch {
	case e.Detail == nilContext:
		return "pass context.Background() to wait without limit"
	case e.Weight < 0 && e.Err == ErrInvalid:
		return "pass a weight of 0 or more"
	case e.Weight > 0 && e.Capacity == 0 && (e.Err == ErrFull || e.Err == ErrTimeout):
		return "raise the capacity: 0 pauses the semaphore"
	}
	return ""
}

// Reason returns a short stable word for why an acquire failed, for metric labels:
//
//   - "full", "queue-full", "timeout", "closed", "draining", "too-large", "lost",
//     "unavailable", "over-release" or "invalid" for the sentinels of this package;
//   - "cancelled" and "deadline" for contexts that ended;
//   - the result of the method Reason() string of an error in the chain, such as
//     "rate" or "breaker";
//   - "other" for all other errors, and "" for nil.
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

// sentinelOf returns the error for a status that ends an acquire.
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
	panic(fmt.Sprintf("sema: status %d is not an error", v))
}
