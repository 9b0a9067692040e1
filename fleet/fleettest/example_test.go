package fleettest_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
)

// The test of an engine that knows no other clock than its own, and may be
// shared by all checks.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConforms
		shared := memstore.New()
		fleettest.Run(t, func(*testing.T) fleet.Store { return shared })
	}
}

// A store whose engine is its own, and takes its time from the Clock.
type clocked struct {
	*memstore.Store
	*fleettest.Clock
}

// The test of an engine whose clock can be set, and which has to prove itself on
// more histories than most.
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
