package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A rejectingStore opens no session.
type rejectingStore struct{ Store }

func (rejectingStore) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, sema.ErrInvalid
}

func (rejectingStore) Close() error { return nil }

func TestRegion_RetainsNoNameThatCouldNotBeOpened(t *testing.T) {
	t.Parallel()
	r := NewRegion(rejectingStore{}, nil, time.Second)
	defer r.Close()
	for i := range 3 {
		_, _, err := r.Open(t.Context(), fmt.Sprint("name", i), protocol.Config{Capacity: 1}, protocol.Opener{})
		if !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	}
	if n := len(r.keepers); n != 0 {
		t.Errorf("%d keepers of semaphores that do not exist", n)
	}
}
