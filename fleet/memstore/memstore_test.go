package memstore_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
)

// A clocked store has a clock that the test sets.
type clocked struct {
	*memstore.Store
	*fleettest.Clock
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	fleettest.Run(t, func(*testing.T) fleet.Store {
		clock := &fleettest.Clock{}
		return clocked{memstore.NewWithClock(clock.Now), clock}
	})
}

func TestStore_ConformsWhenSharedWithTheRealClock(t *testing.T) {
	t.Parallel()
	shared := memstore.New()
	fleettest.Suite{Open: func(*testing.T) fleet.Store { return shared }, Histories: 200}.Run(t)
}
