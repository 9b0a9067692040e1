package sqlitestore

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
)

// A clocked store has a file of its own, the clock of which can be set.
type clocked struct {
	*Store
	*fleettest.Clock
}

func TestConforms(t *testing.T) {
	t.Parallel()
	fleettest.Suite{Histories: histories, Open: func(t *testing.T) fleet.Store {
		store := openAt(t, newFile(t), Options{Prefix: "here:", Normal: true})
		clock := &fleettest.Clock{}
		store.useClock(func() protocol.Micros { return protocol.Micros(clock.Now().UnixMicro()) })
		return clocked{store, clock}
	}}.Run(t)
}

func TestConformsIfSharedAndByTheRealClock(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	openAt(t, path, Options{}) // from the first check to the last
	fleettest.Suite{Histories: histories / 3, Open: func(t *testing.T) fleet.Store { return openAt(t, path, Options{}) }}.Run(t)
}
