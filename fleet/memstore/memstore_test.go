package memstore_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
)

// A clocked store has an engine of its own, the clock of which can be set.
type clocked struct {
	*memstore.Store
	*fleettest.Clock
}

func TestConforms(t *testing.T) {
	t.Parallel()
	fleettest.Run(t, func(*testing.T) fleet.Store {
		clock := &fleettest.Clock{}
		return clocked{memstore.NewWithClock(clock.Now), clock}
	})
}

func TestConformsIfSharedAndByTheRealClock(t *testing.T) {
	t.Parallel()
	shared := memstore.New()
	fleettest.Suite{Open: func(*testing.T) fleet.Store { return shared }, Histories: 200}.Run(t)
}
