package protocol

import (
	"errors"
	"fmt"

	"github.com/sema-go/sema"
)

// Err returns the error of package sema for a rejected acquire. An unknown kind comes from a
// newer version and counts as a rejection.
func (k ResultKind) Err() error {
	switch k {
	case Full:
		return sema.ErrFull
	case QueueFull:
		return sema.ErrQueueFull
	case TooLarge:
		return sema.ErrTooLarge
	case Draining:
		return sema.ErrDraining
	case TimedOut:
		return sema.ErrTimeout
	case Undecided:
		return sema.ErrUnavailable
	}
	return fmt.Errorf("%w: result %d", sema.ErrInvalid, k)
}

// MayChange reports whether a rejection depends on what is held. Then a retry makes sense once
// the store has decided which leases are held.
func MayChange(rejection error) bool {
	return errors.Is(rejection, sema.ErrFull) || errors.Is(rejection, sema.ErrTimeout) || errors.Is(rejection, sema.ErrUnavailable)
}
