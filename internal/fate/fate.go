// Package fate says what becomes of a ticket in the errors of package sema, for
// those who speak the fleet protocol: package fleet, and internal/desk.
package fate

import (
	"errors"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// Error is for a ticket that was refused. A kind that is not known comes from a
// newer version, and is a refusal.
func Error(kind protocol.FateKind) error {
	switch kind {
	case protocol.Full:
		return sema.ErrFull
	case protocol.QueueFull:
		return sema.ErrQueueFull
	case protocol.TooLarge:
		return sema.ErrTooLarge
	case protocol.Draining:
		return sema.ErrDraining
	case protocol.TimedOut:
		return sema.ErrTimeout
	case protocol.Undecided:
		return sema.ErrUnavailable
	}
	return fmt.Errorf("%w: fate %d", sema.ErrInvalid, kind)
}

// MayChange reports whether a rejection depends on what is held, so that asking again
// makes sense once the store knows that.
func MayChange(err error) bool {
	return errors.Is(err, sema.ErrFull) || errors.Is(err, sema.ErrTimeout) || errors.Is(err, sema.ErrUnavailable)
}
