package fleettest_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
)

// This example tests a store that has no settable clock and that all checks may share.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConforms
		shared := memstore.New()
		fleettest.Run(t, func(*testing.T) fleet.Store { return shared })
	}
}

// A clocked store takes its time from the Clock and is not shared.
type clocked struct {
	*memstore.Store
	*fleettest.Clock
}

// This example tests a store whose clock can be set, with more histories than the default.
func ExampleSuite() {
	_ = func(t *testing.T) { // func TestConforms
		fleettest.Suite{
			Open: func(*testing.T) fleet.Store {
				clock := &fleettest.Clock{}
				return clocked{memstore.NewWithClock(clock.Now), clock}
			},
			Histories: 100_000,
		}.Run(t)
	}
}
