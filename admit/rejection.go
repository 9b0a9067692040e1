package admit

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Rejection is the error of a request that was not admitted. [errors.Is] finds the
// sentinel of package sema that it stands for: ErrFull, ErrQueueFull, ErrTimeout,
// ErrDraining or ErrUnavailable. Rejections are shared among callers: do not change them.
type Rejection struct {
	Controller string        // name of the controller
	Reason     Reason        //
	Class      string        // of the request
	RetryAfter time.Duration // after which a retry makes sense, rounded up; 0: unknown
	Err        error         // the sentinel, with the facts of the reason
}

// RejectionOf returns the Rejection in the chain of err, or nil.
func RejectionOf(err error) *Rejection {
	var r *Rejection
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// Error returns one line of facts. [sema.Hint] returns the advice, and [sema.Reason] the
// reason.
func (r *Rejection) Error() string {
	text := "admit"
	if r.Controller != "" {
		text += fmt.Sprintf(" %q", r.Controller)
	}
	if r.Class != "" {
		text += fmt.Sprintf(", class %q", r.Class)
	}
	text += ": " + r.Err.Error()
	if r.RetryAfter > 0 {
		text += fmt.Sprintf(" (retry after %v)", r.RetryAfter)
	}
	return text
}

// Unwrap returns Err.
func (r *Rejection) Unwrap() error { return r.Err }

// ladder contains the values of Rejection.RetryAfter. There are few, so that a class keeps
// all its rejections and a rejection allocates nothing.
var ladder = [...]time.Duration{
	0, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 13 * time.Second, 21 * time.Second, 34 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// rung returns the index of the first value in the ladder that is at least d, or the last.
// Gates return math.MaxInt64 if the time is unknown.
func rung(d time.Duration) int {
	if d == math.MaxInt64 {
		return 0
	}
	for i, step := range ladder {
		if d <= step {
			return i
		}
	}
	return len(ladder) - 1
}
