package sema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What callers branch on, with errors.Is, at every scope. The errors returned
// are *[Error] values that wrap one of these with the facts. A context that
// ended is not wrapped: its cause is returned as it is.
var (
	// ErrFull: a try found too few permits free.
	ErrFull error = &sentinel{text: "too few permits free", hint: "wait with Acquire, or shed the request"}
	// ErrQueueFull: as many callers wait as MaxWaiters allows. It is ErrFull too.
	ErrQueueFull error = &sentinel{text: "queue full", hint: "shed the request, or raise MaxWaiters", is: ErrFull}
	// ErrTimeout: MaxWait passed. It is context.DeadlineExceeded too.
	ErrTimeout error = &sentinel{text: "waited too long", hint: "look for permits held too long, or raise MaxWait or the capacity", is: context.DeadlineExceeded}
	// ErrClosed: the semaphore was closed.
	ErrClosed error = &sentinel{text: "closed", hint: "make a new one; what is closed stays closed"}
	// ErrDraining: the semaphore is draining and takes nobody in.
	ErrDraining error = &sentinel{text: "draining", hint: "go elsewhere, or retry when it is open again"}
	// ErrTooLarge: more was asked for than can ever be granted.
	ErrTooLarge error = &sentinel{text: "larger than capacity", hint: "split the request, or raise the capacity"}
	// ErrLost: the lease behind a permit is gone; somebody else may hold it.
	ErrLost error = &sentinel{text: "lease lost", hint: "stop using the resource and acquire again"}
	// ErrUnavailable: the engine behind a fleet semaphore does not answer.
	ErrUnavailable error = &sentinel{text: "engine unavailable", hint: "check that it runs and can be reached"}
	// ErrOverRelease: more was given back than is out.
	ErrOverRelease error = &sentinel{text: "more released than acquired", hint: "release each permit once, by whoever acquired it"}
	// ErrInvalid: the call makes no sense: a negative weight, a nil context.
	ErrInvalid error = &sentinel{text: "invalid argument"}
)

// A sentinel is an error that may be a special case of another.
type sentinel struct {
	text, hint string
	is         error
}

func (e *sentinel) Error() string        { return "sema: " + e.text }
func (e *sentinel) Is(target error) bool { return e.is != nil && errors.Is(e.is, target) }

// An Error says what was refused, with the numbers of that moment and a hint
// of what to do. Err is the sentinel it is.
type Error struct {
	Op       string // what was tried: "acquire", "try", "drain", …
	Name     string // the semaphore's, if it has one
	Weight   int64  // what was asked for
	Capacity int64
	InUse    int64
	Waiters  int
	Detail   string // more facts, if there are any
	// After is the time after which asking again makes sense; 0: unknown.
	After time.Duration
	Err   error
}

// Error is one line: what, how much of how much, why, and what to do.
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
	text, hint := "failed", ""
	switch err := e.Err.(type) {
	case nil:
	case *sentinel:
		text, hint = err.text, err.hint
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
	if hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// sentinelOf is the error for a verdict that ends an acquire.
func sentinelOf(v verdict) error {
	switch v {
	case full:
		return ErrFull
	case queueFull:
		return ErrQueueFull
	case tooLarge:
		return ErrTooLarge
	case refused:
		return ErrDraining
	case closed:
		return ErrClosed
	case timedOut:
		return ErrTimeout
	}
	panic(fmt.Sprintf("sema: verdict %d is no refusal", v))
}
