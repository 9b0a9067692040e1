package protocol_test

import (
	"errors"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestResultKind_Err(t *testing.T) {
	t.Parallel()
	for kind, want := range map[protocol.ResultKind]error{
		protocol.Full: sema.ErrFull, protocol.QueueFull: sema.ErrQueueFull, protocol.TooLarge: sema.ErrTooLarge,
		protocol.Draining: sema.ErrDraining, protocol.TimedOut: sema.ErrTimeout, protocol.Invalid: sema.ErrInvalid,
		protocol.Undecided: sema.ErrUnavailable,
		200:                sema.ErrInvalid, // from a newer version
	} {
		if err := kind.Err(); !errors.Is(err, want) {
			t.Errorf("result %d: %v, want %v", kind, err, want)
		}
	}
}
