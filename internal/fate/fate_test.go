package fate_test

import (
	"errors"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/fate"
)

func TestEveryFateIsAnError(t *testing.T) {
	t.Parallel()
	for kind, want := range map[protocol.FateKind]error{
		protocol.Full: sema.ErrFull, protocol.QueueFull: sema.ErrQueueFull, protocol.TooLarge: sema.ErrTooLarge,
		protocol.Draining: sema.ErrDraining, protocol.TimedOut: sema.ErrTimeout, protocol.Invalid: sema.ErrInvalid,
		200: sema.ErrInvalid, // of a version that is still to come
	} {
		if err := fate.Error(kind); !errors.Is(err, want) {
			t.Errorf("fate %d: %v, want %v", kind, err, want)
		}
	}
}
